"""A schedule, many clients, one run record.

In: a schedule, a target, a ``RunWriter``. Worker processes send by the schedule and append each exchange to their own
journal; the parent samples signals, reports progress, and at the end computes summary and verdicts. A send never
waits for an answer, and the client certifies itself before it accuses a server.
"""
