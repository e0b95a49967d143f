"""``nonce_leak``: what one request says never turns up in the answer to another."""

import asyncio
import secrets

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server

NAME = "nonce_leak"
REQUESTS = 12
ROUNDS = 2


async def nonce_leak(server: Server) -> Finding:
    """Concurrent requests with a nonce each, asked to repeat it; finding another's is a leak."""
    echoed = answered = 0
    for _ in range(ROUNDS):
        nonces = [secrets.token_hex(6) for _ in range(REQUESTS)]
        asked = [server.ask(f"Repeat this code and nothing else: {nonce}", 24) for nonce in nonces]
        for own, (row, response) in zip(nonces, await asyncio.gather(*asked), strict=True):
            answered += row.outcome.answered
            echoed += own in response.text
            if any(other != own and other in response.text for other in nonces):
                return Finding(NAME, State.MISSED, "an answer holds the code of another request")
    if answered < REQUESTS * ROUNDS * 0.8:
        return Finding(NAME, State.UNDECIDED, f"only {answered} of {REQUESTS * ROUNDS} requests were answered")
    why = f"{answered} concurrent answers, none holds another's code ({echoed} hold their own)"
    return Finding(NAME, State.MET, why)
