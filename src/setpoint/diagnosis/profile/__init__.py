"""A profiler's trace as a table: kernels by family, their share, the gaps between them, and what bounds them.

In: a PyTorch (Kineto) trace, plain or gzipped, as vLLM's profiler endpoints write it; or an Nsight Systems export to
SQLite. Out: a ``Profile``.
"""
