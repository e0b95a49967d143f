"""Kept-alive connections to one engine."""

import asyncio
import socket
import ssl
from collections import deque

from setpoint.client.address import Address
from setpoint.client.connection import Connection
from setpoint.clock import MonotonicClock

MAX_IDLE = 512
IDLE_S = 60.0  # a connection that the engine closed meanwhile is noticed, or retried: nothing of it was answered


class Pool:
    """Connections to one address on one event loop.

    Args:
        address: Where to.
        tls: TLS context; None speaks plain HTTP.
    """

    def __init__(self, address: Address, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._tls = tls
        self._idle: deque[Connection] = deque()
        self._clock = MonotonicClock()

    def take(self) -> Connection | None:
        """The most recently used idle connection that is still open."""
        oldest = self._clock.now() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since_s >= oldest:
                return connection
            connection.abort()
        return None

    async def connect(self) -> Connection:
        """A new connection.

        Raises:
            OSError: none could be made.
        """
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._clock),
            self._address.host,
            self._address.port,
            ssl=self._tls,
            server_hostname=self._address.host if self._tls else None,
        )
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def give_back(self, connection: Connection) -> None:
        """It may carry another request."""
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE:
            self._idle.popleft().abort()

    def close(self) -> None:
        """Closes the idle ones."""
        while self._idle:
            self._idle.pop().abort()
