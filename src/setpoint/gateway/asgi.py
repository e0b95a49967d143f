"""Serves an ASGI app on the gateway's own connections: enough for an administrative address, and one server less."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from setpoint.gateway.config import Http
from setpoint.gateway.downstream import ServerConnection
from setpoint.gateway.incoming import Request
from setpoint.gateway.refusal import Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiHost:
    """Implements ``downstream.Host`` for one app.

    Args:
        app: It.
        http: Bounds.
    """

    def __init__(self, app: App, http: Http | None = None) -> None:
        self.http = http or Http(max_body=2**20)
        self.connections: set[ServerConnection] = set()
        self.buffered = 0
        self.draining = False
        self._app = app

    def full(self) -> bool:
        """Whether no further connection is taken."""
        return len(self.connections) >= 256

    def refused(self, code: str) -> None:
        """A request that the parser refused: nothing to do."""

    def start(self, connection: ServerConnection, request: Request) -> "asyncio.Task[None]":
        """Calls the app."""
        task = asyncio.get_running_loop().create_task(self._serve(connection, request))
        task.add_done_callback(lambda _: connection.served(task.cancelled()))
        return task

    async def _serve(self, connection: ServerConnection, request: Request) -> None:
        status, fields, parts = 500, [("content-type", "text/plain")], []

        async def receive() -> Message:
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, fields
            if message["type"] == "http.response.start":
                status = message["status"]
                fields = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message.get("headers", ())]
            else:
                parts.append(message.get("body", b""))

        path, _, query = request.target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "path": path,
            "query_string": query.encode("latin-1"),
            "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in request.fields.items()],
        }
        try:
            await self._app(scope, receive, send)
        except Refusal as refusal:
            status, fields, parts = (
                refusal.status,
                [("content-type", "application/json"), *refusal.fields],
                [refusal.body(None)],
            )
        kind = next((value for name, value in fields if name == "content-type"), "text/plain")
        connection.reply(
            status, b"".join(parts), [f for f in fields if f[0] not in ("content-type", "content-length")], kind
        )

    def check(self) -> None:
        """Ends connections that are too slow."""
        now = time.monotonic()
        for connection in tuple(self.connections):
            connection.check(now)
