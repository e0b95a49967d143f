"""A stream that says nothing for as long as it is asked to: what lies between client and gateway shows when it cuts.

``GET /v1/setpoint/silence/SECONDS`` begins, is silent, and ends with ``[DONE]``; with ``/pings`` after the number a
ping comes every few seconds. It takes no engine, and needs credentials like everything else.
"""

import asyncio

from setpoint.gateway.downstream import ServerConnection
from setpoint.gateway.refusal import Refusal
from setpoint.protocol.translate import ping
from setpoint.records.target import Dialect

SILENCE = "/v1/setpoint/silence/"
LONGEST_S = 3600
PING_S = 5.0


async def keep_silent(client: ServerConnection, asked: str, fields: list[tuple[str, str]]) -> None:
    """Answers a request for silence.

    Args:
        client: Where to.
        asked: Seconds, and ``/pings`` for pings.
        fields: Header fields of the answer.

    Raises:
        Refusal: 400, no number of seconds.
    """
    number, _, manner = asked.partition("/")
    if not (number.isascii() and number.isdigit()) or not 0 < int(number) <= LONGEST_S or manner not in ("", "pings"):
        raise Refusal(400, "invalid_request", f"Ask for 1 to {LONGEST_S} seconds.")
    client.head(200, [("content-type", "text/event-stream"), ("cache-control", "no-cache"), *fields])
    client.send(b'data: {"silence_s":%d}\n\n' % int(number))
    left = float(number)
    while left > 0:
        await asyncio.sleep(min(left, PING_S) if manner else left)
        left -= PING_S if manner else left
        if manner:
            client.send(ping(Dialect.CHAT))
    client.end(b"data: [DONE]\n\n")
