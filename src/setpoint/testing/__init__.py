"""Public fakes: an engine with scripted latencies and faults, and a virtual clock."""
