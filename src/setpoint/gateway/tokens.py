"""Bearer tokens of an identity provider (JWT), checked with PyJWT against the provider's published keys."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from setpoint.client.client import Client
from setpoint.errors import SetpointError, UsageError
from setpoint.gateway.config import Jwt
from setpoint.records.target import Dialect, Target

if TYPE_CHECKING:
    from jwt import PyJWK

REFETCH_S = 10.0  # an unknown key id asks the provider at most this often
REMEMBERED = 4096


class JwtVerifier:
    """Implements ``TokenVerifier``.

    Keys are fetched when they are older than their time to live, and early when a token names one that is not known:
    a rotation at the provider needs none here. A provider that cannot be reached leaves the known keys in force.

    Args:
        rules: What a token must carry.

    Raises:
        UsageError: PyJWT is not installed.
    """

    def __init__(self, rules: Jwt) -> None:
        try:
            import jwt  # noqa: PLC0415 - an extra
        except ImportError:
            raise UsageError("auth.jwt needs PyJWT.", fix="Install setpoint[gateway].") from None
        self._jwt = jwt
        self._rules = rules
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_s = float("-inf")
        self._tried_s = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._accepted: OrderedDict[bytes, tuple[float, str, str]] = OrderedDict()

    async def verify(self, token: str) -> tuple[str, str] | None:
        """Tenant and subject of a token that is signed, in time, and meant for us."""
        mark = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._accepted.get(mark)
        if known is not None and time.time() < known[0] and self._fresh():
            return known[1], known[2]
        try:
            kid = self._jwt.get_unverified_header(token).get("kid")
            key = await self._key(kid)
            if key is None:
                return None
            claims = self._jwt.decode(
                token,
                key,
                algorithms=list(self._rules.algorithms),
                issuer=self._rules.issuer,
                audience=self._rules.audience,
                leeway=self._rules.leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (self._jwt.PyJWTError, ValueError):
            return None
        tenant = claims.get(self._rules.tenant_claim)
        if not isinstance(tenant, str) or not tenant:
            return None
        subject = str(claims.get("sub", ""))
        self._accepted[mark] = (float(claims["exp"]), tenant, subject)
        if len(self._accepted) > REMEMBERED:
            self._accepted.popitem(last=False)
        return tenant, subject

    def _fresh(self) -> bool:
        return time.monotonic() - self._fetched_s < self._rules.jwks_ttl

    async def _key(self, kid: str | None) -> "PyJWK | None":
        now = time.monotonic()
        begins = (not self._fresh() or kid not in self._keys) and now - self._tried_s >= REFETCH_S
        if begins and self._fetching is None:
            self._tried_s = now
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        if self._fetching is not None and (begins or kid not in self._keys):
            await asyncio.shield(self._fetching)  # whoever leaves does not take the answer from the others
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _fetched(self, _: object) -> None:
        self._fetching = None

    async def _fetch(self) -> None:
        try:
            document = await _read(self._rules.jwks)
            keys = self._jwt.PyJWKSet.from_dict(msgspec.json.decode(document, type=dict)).keys
        except (SetpointError, OSError, self._jwt.PyJWTError, msgspec.DecodeError):
            return
        self._keys = {key.key_id: key for key in keys}
        self._fetched_s = time.monotonic()
        self._accepted.clear()


async def _read(where: str) -> bytes:
    if "://" not in where:
        return await asyncio.to_thread(Path(where).read_bytes)
    parts = urlsplit(where)
    client = Client(Target(f"{parts.scheme}://{parts.netloc}", Dialect.CHAT, ""))
    response = await client.fetch("GET", parts.path or "/", timeout_s=5.0, max_bytes=2**20)
    if response.status != 200:
        raise SetpointError(f"HTTP {response.status}")
    return response.body
