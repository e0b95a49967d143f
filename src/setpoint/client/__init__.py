"""One exchange over the wire: sockets, pools, timing and phase timeouts."""
