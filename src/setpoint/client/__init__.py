"""One exchange over the wire: sockets, pools, timing and phase timeouts.

In: a target and the bytes of a request. Out: an ``Exchange`` and, when asked for, the text of the answer. The data
path is ``asyncio.Protocol`` with httptools: times are taken where bytes arrive, and nothing is awaited per chunk.
"""
