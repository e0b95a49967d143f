"""The administrative app (ASGI): keys, usage, metrics, status. On an address of its own."""

import hmac
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qs

import msgspec

from setpoint.errors import UsageError
from setpoint.gateway.asgi import Receive, Scope, Send
from setpoint.gateway.config import Limits
from setpoint.gateway.identity import credential
from setpoint.gateway.keys import Key, KeyStore
from setpoint.gateway.ledger import Ledger
from setpoint.gateway.metrics import CONTENT_TYPE, Metrics
from setpoint.gateway.refusal import Refusal, unauthorized
from setpoint.gateway.status_page import page

_BY = ("hour", "tenant", "key", "model", "outcome")


class _NewKey(msgspec.Struct, forbid_unknown_fields=True):
    tenant: str
    note: str = ""
    models: list[str] | None = None
    scopes: tuple[str, ...] | None = None
    limits: dict[str, int] | None = None
    expires_in_s: float | None = None
    replaces: str | None = None
    overlap_s: float = 0.0


class Admin:
    """An ASGI app.

    Args:
        keys: API keys.
        ledger: Usage.
        metrics: Prometheus text.
        status: What the status page shows.
        open_reading: Whether reading needs no key. Changing always does.
    """

    def __init__(
        self,
        keys: KeyStore,
        ledger: Ledger,
        metrics: Metrics,
        status: Callable[[], dict[str, Any]],
        *,
        open_reading: bool,
    ) -> None:
        self._keys = keys
        self._ledger = ledger
        self._metrics = metrics
        self._status = status
        self._open = open_reading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        status, kind, body = 200, "application/json", b""
        try:
            kind, body = await self._answer(scope, receive)
        except Refusal as refusal:
            status, body = refusal.status, refusal.body(None)
        except UsageError as error:
            status, body = 400, Refusal(400, "invalid_request", error.message).body(None)
        fields = [(b"content-type", kind.encode()), (b"cache-control", b"no-store"), (b"x-frame-options", b"DENY")]
        fields.append((b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"))
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[str, bytes]:
        method, path = scope["method"], scope["path"]
        if path == "/healthz" and method == "GET":
            return "application/json", b'{"ok":true}'
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if method != "GET" or not self._open:
            self._allow(fields)
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if method == "GET":
            return self._read(path, query)
        if method == "POST" and path == "/keys":
            return "application/json", self._create((await receive())["body"])
        if method == "DELETE" and path.startswith("/keys/"):
            self._keys.revoke(path.removeprefix("/keys/"))
            return "application/json", b'{"revoked":true}'
        raise Refusal(404, "not_found", "There is nothing here.")

    def _allow(self, fields: dict[str, str]) -> None:
        text = credential(fields)
        key = None if text is None else self._keys.find(text)
        if key is None or not any(hmac.compare_digest(scope, "admin") for scope in key.scopes):
            raise unauthorized()

    def _read(self, path: str, query: dict[str, list[str]]) -> tuple[str, bytes]:
        if path == "/":
            return "text/html; charset=utf-8", page(self._status()).encode()
        if path == "/metrics":
            return CONTENT_TYPE, self._metrics.text()
        if path == "/status":
            return "application/json", msgspec.json.encode(self._status())
        if path == "/keys":
            return "application/json", msgspec.json.encode([shown(key) for key in self._keys.list()])
        if path == "/usage":
            by = tuple(query.get("by", ["tenant,model"])[0].split(","))
            if not set(by) <= set(_BY):
                raise Refusal(400, "invalid_request", f"by takes names among {', '.join(_BY)}.")
            rows = [asdict(row) | {"group": dict(zip(by, row.group, strict=True))} for row in self._ledger.usage(by=by)]
            return "application/json", msgspec.json.encode(rows)
        raise Refusal(404, "not_found", "There is nothing here.")

    def _create(self, body: bytes) -> bytes:
        try:
            asked = msgspec.json.decode(body, type=_NewKey)
            limits = None if asked.limits is None else Limits.model_validate(asked.limits)
        except (msgspec.DecodeError, ValueError):
            raise Refusal(400, "invalid_request", "The body is not the description of a key.") from None
        key, text = self._keys.create(
            asked.tenant,
            note=asked.note,
            models=None if asked.models is None else tuple(asked.models),
            scopes=asked.scopes,
            limits=limits,
            expires_in_s=asked.expires_in_s,
            replaces=asked.replaces,
            overlap_s=asked.overlap_s,
        )
        return msgspec.json.encode(shown(key) | {"key": text})


def shown(key: Key) -> dict[str, Any]:
    """A key's record as people and programs see it."""
    return {
        "id": key.id,
        "tenant": key.tenant,
        "note": key.note,
        "models": key.models,
        "scopes": key.scopes,
        "limits": key.limits.model_dump(exclude_none=True),
        "created": key.created,
        "expires": key.expires,
        "revoked": key.revoked,
        "replaces": key.replaces,
        "valid": key.valid(time.time()),
    }
