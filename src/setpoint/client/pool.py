"""Connections to one address: made, kept alive while unused, and closed when they grow old."""

import asyncio
import socket
import ssl
from collections import deque
from functools import partial

from setpoint.client.address import Address
from setpoint.client.connection import Connection
from setpoint.client.limits import PoolLimits
from setpoint.clock import Clock


class Pool:
    """Connections to one address on one event loop.

    Args:
        address: Where to.
        tls: TLS context; None speaks plain HTTP.
        limits: ``max_idle`` and ``idle_s``; how many are open at once is up to the caller.
        clock: Monotonic.

    Attributes:
        idle: Unused connections, by the end of their latest use.
    """

    def __init__(self, address: Address, tls: ssl.SSLContext | None, limits: PoolLimits, clock: Clock) -> None:
        self._address = address
        self._tls = tls
        self._limits = limits
        self._clock = clock
        self._connections: set[Connection] = set()
        self._ended = False
        self._resolved: list[tuple[int, str]] = []
        self.idle: deque[Connection] = deque()

    def take(self) -> Connection | None:
        """The latest used idle connection that is still open, if it is young enough."""
        idle = self.idle
        if not idle:
            return None
        oldest = self._clock.now() - self._limits.idle_s
        while idle:
            connection = idle.pop()
            if connection.usable and connection.idle_since_s >= oldest:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection) -> None:
        """It may carry another request. The latest used are used first: those a burst left over grow old and close."""
        if self._ended:
            connection.abort()
            return
        idle = self.idle
        idle.append(connection)
        oldest = connection.idle_since_s - self._limits.idle_s
        while idle and (idle[0].idle_since_s < oldest or len(idle) > self._limits.max_idle):
            idle.popleft().abort()

    async def connect(self) -> Connection:
        """A new connection; the name is resolved once, and again after none of its addresses could be reached.

        Raises:
            OSError: no address could be connected to.
        """
        loop = asyncio.get_running_loop()
        if not self._resolved:
            found = await loop.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
            self._resolved = [(int(family), str(where[0])) for family, _, _, _, where in found]
        failure: OSError | None = None
        for family, host in self._resolved:
            try:
                transport, connection = await loop.create_connection(
                    lambda: Connection(self._clock),
                    host,
                    self._address.port,
                    family=family,
                    ssl=self._tls,
                    server_hostname=self._address.host if self._tls else None,
                )
            except OSError as error:
                failure = error
                continue
            self._connections.add(connection)
            connection.lost.add_done_callback(partial(self._forget, connection))
            sock: socket.socket | None = transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        assert failure is not None
        self._resolved.clear()
        raise failure

    def end(self) -> None:
        """Closes the idle ones, and those in use when they are given back."""
        self._ended = True
        while self.idle:
            self.idle.popleft().abort()

    async def close(self) -> None:
        """Ends; returns when the sockets of all that were given up are closed."""
        self.end()
        closing = [connection.lost for connection in self._connections if not connection.usable]
        if closing:
            await asyncio.wait(closing)

    def _forget(self, connection: Connection, _: asyncio.Future[None]) -> None:
        self._connections.discard(connection)
