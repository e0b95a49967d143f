"""``truncation``: an answer that is cut says so, and is no longer than allowed."""

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server, failed
from setpoint.records.exchange import Outcome

NAME = "truncation"
LIMIT = 5


async def truncation(server: Server) -> Finding:
    """A long answer with a small limit, streamed and whole."""
    for stream in (True, False):
        row, _ = await server.ask("Write a long story about a lighthouse.", LIMIT, stream=stream)
        how = "streamed" if stream else "whole"
        if not row.outcome.answered:
            return failed(NAME, row)
        if row.outcome is not Outcome.LENGTH:
            why = f"a {how} answer that was cut at {LIMIT} tokens ends with finish reason {row.finish_reason}"
            return Finding(NAME, State.MISSED, why)
        if row.completion_tokens is not None and row.completion_tokens > LIMIT:
            why = f"a {how} answer has {row.completion_tokens} tokens, allowed {LIMIT}"
            return Finding(NAME, State.MISSED, why)
    return Finding(NAME, State.MET, f"cut at {LIMIT} tokens and said so, streamed and whole")
