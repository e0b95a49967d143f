"""Versioned, append-only run folders, and the row that every metric is computed from.

In: exchanges, signals, log events and a summary, from whoever runs a schedule (load generator, simulator or
gateway). Out: ``.setpoint/runs/<time>-<card>-<short id>/`` with ``run.json``, ``exchanges.parquet``,
``signals.parquet`` and ``log.jsonl``; a crash at any moment leaves a readable record marked incomplete.
"""
