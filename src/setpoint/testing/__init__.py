"""Public fakes: a null server, an engine with scripted latencies and faults, a slow proxy, and a virtual clock.

They are real HTTP servers in processes of their own: tests and users who try a card without a model meet the same
sockets as with a real engine.
"""
