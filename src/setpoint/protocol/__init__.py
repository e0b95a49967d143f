"""Wire types and the verdict on an answer, written once for load generator and gateway.

In: the bytes of an HTTP response, as they arrive. Out: deltas with their times, and at the end one ``Judgement``:
the outcome, usage and finish reason. Also the requests of each dialect.
"""
