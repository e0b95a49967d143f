"""A proxy that hands each request on late: a gateway or a network that costs time.

``python -m setpoint.testing.slow_proxy --upstream 127.0.0.1:8000 --delay 0.3``. It works on bytes: whatever a client
sends after a pause is one request, and is held back as a whole; answers pass at once.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Iterator
from typing import cast

from setpoint.testing.serve import running, serve


class ProxyProtocol(asyncio.Protocol):
    """One client connection and the one to the server behind it.

    Args:
        host: Of the server.
        port: Likewise.
        delay_s: How long a request is held.
    """

    def __init__(self, host: str, port: int, delay_s: float) -> None:
        self._address = host, port
        self._delay_s = delay_s
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._held = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._client = cast("asyncio.Transport", transport)
        self._opening = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: held."""
        self._held += data
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._hand_on)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's shape
        """The client has gone: so has its request."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()

    def _hand_on(self) -> None:
        self._timer = None
        if self._server is None:
            self._timer = asyncio.get_running_loop().call_later(0.01, self._hand_on)
            return
        self._server.write(bytes(self._held))
        self._held.clear()

    async def _connect(self) -> None:
        assert self._client is not None
        client = self._client
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: _Back(client), *self._address)
        except OSError:
            client.close()
            return
        self._server = transport


class _Back(asyncio.Protocol):
    """What the server sends goes to the client at once."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's shape
        self._client.close()


@contextlib.contextmanager
def slow_proxy(url: str, delay_s: float) -> Iterator[str]:
    """Runs a proxy in front of ``url`` until the block ends; yields its own URL."""
    upstream = url.removeprefix("http://")
    with running("setpoint.testing.slow_proxy", ("--upstream", upstream, "--delay", str(delay_s))) as (own, _):
        yield own


def main() -> None:
    """``python -m setpoint.testing.slow_proxy --upstream HOST:PORT [--delay 0.3] [--port 0]``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--upstream", required=True, help="host:port of the server")
    parser.add_argument("--delay", type=float, default=0.3, help="seconds that a request is held")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    host, _, port = options.upstream.partition(":")
    import uvloop  # noqa: PLC0415 - only the process that serves needs it

    uvloop.run(serve(lambda: ProxyProtocol(host, int(port), options.delay), options.port))


if __name__ == "__main__":
    main()
