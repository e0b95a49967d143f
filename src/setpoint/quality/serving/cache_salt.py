"""``cache_salt``: the prefix cache serves the same salt, and nobody else's."""

import secrets

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server
from setpoint.records.exchange import Outcome

NAME = "cache_salt"
FILL = "The harbour was quiet and the boats lay still in the water. " * 30


async def cache_salt(server: Server) -> Finding:
    """Both halves are needed: a cache that never hits isolates perfectly.

    A target that knows salts refuses an empty one; one that takes it does not look at the member.
    """
    row, _ = await server.ask("Hello.", 1, cache_salt="")
    if row.outcome is not Outcome.REFUSED:
        return Finding(NAME, State.UNDECIDED, "the target ignores cache_salt: its cache is shared by all who use it")
    own, other = secrets.token_hex(8), secrets.token_hex(8)
    prompt = f"{secrets.token_hex(8)} {FILL}"
    cached = []
    for salt in (own, own, other):
        row, _ = await server.ask(prompt, 1, cache_salt=salt)
        if not row.outcome.answered or row.cached_tokens is None:
            return Finding(NAME, State.UNDECIDED, "the target does not report cached tokens")
        cached.append(row.cached_tokens)
    first, same, foreign = cached
    if foreign > first:
        return Finding(NAME, State.MISSED, f"another salt found {foreign} cached tokens")
    if same <= first:
        return Finding(NAME, State.MISSED, f"the same salt found {same} cached tokens: the cache does not hit")
    return Finding(NAME, State.MET, f"the same salt found {same} cached tokens, another {foreign}")
