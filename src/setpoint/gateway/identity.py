"""Who calls: a key or a token becomes an identity, and nothing else does."""

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from setpoint.errors import SetpointError
from setpoint.gateway.config import Gateway, Limits, Tenant
from setpoint.gateway.keys import Key, KeyStore
from setpoint.gateway.limits import Holder
from setpoint.gateway.refusal import unauthorized


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller.

    Attributes:
        tenant: Whose account.
        key: Public part of the key; None for a token or an anonymous caller.
        subject: ``sub`` of a token.
        models: Models it may use; None is all.
        scopes: What it may do.
        holders: Whose allowances its requests use.
        weight: Of its tenant.
        priority: Class of its requests.
        max_output: Longest answer.
        max_context: Longest prompt.
    """

    tenant: str
    key: str | None
    subject: str | None
    models: frozenset[str] | None
    scopes: frozenset[str]
    holders: tuple[Holder, ...]
    weight: float
    priority: str
    max_output: int | None
    max_context: int | None


class TokenVerifier(Protocol):
    """Turns a bearer token into tenant and subject."""

    async def verify(self, token: str) -> tuple[str, str] | None:
        """Tenant and subject; None for a token that is not accepted."""
        ...


class Authenticator:
    """Denies by default.

    Args:
        config: Tenants and rules.
        keys: Where keys are.
        tokens: For bearer tokens; None accepts none.
    """

    def __init__(self, config: Gateway, keys: KeyStore, tokens: TokenVerifier | None) -> None:
        self._config = config
        self._keys = keys
        self._tokens = tokens
        self._anonymous = None
        self._certificates: dict[str, Identity | None] = {}
        self._known: dict[str, tuple[Key, Identity | None]] = {}
        if config.auth.anonymous is not None:
            self._anonymous = self._identity(config.auth.anonymous, None, None, None, None, frozenset({"inference"}))

    async def identify(self, fields: Mapping[str, str], certificate: tuple[str, ...] = ()) -> Identity:
        """The caller of a request with these header fields.

        Args:
            fields: Header fields, names in lower case.
            certificate: Names in the client's verified certificate. Where one of them is a tenant's, a key or token
                must be of the same tenant, and without any the certificate is who calls.

        Raises:
            Refusal: 401, always the same.
        """
        text = credential(fields)
        shown = self._certified(certificate) if certificate else None
        if text is None and shown is not None and "authorization" not in fields and "x-api-key" not in fields:
            return shown
        if text is None:
            if self._anonymous is None or "authorization" in fields or "x-api-key" in fields:
                raise unauthorized()
            return self._anonymous
        key = self._keys.find(text)
        if key is not None:
            known = self._known.get(key.id)
            if known is None or known[0] is not key:
                found = self._identity(key.tenant, key, None, key.models, key.limits, frozenset(key.scopes))
                known = self._known[key.id] = (key, found)
            found = known[1]
        elif self._tokens is not None and text.count(".") == 2 and (holder := await self._tokens.verify(text)):
            found = self._identity(holder[0], None, holder[1], None, None, frozenset({"inference"}))
        else:
            raise unauthorized()
        if found is None or (shown is not None and shown.tenant != found.tenant):
            raise unauthorized()
        return found

    def _certified(self, names: tuple[str, ...]) -> Identity | None:
        """Whose a certificate is.

        Raises:
            Refusal: 401, its names are of several tenants.
        """
        tenants = {self._config.auth.certificates[name] for name in names if name in self._config.auth.certificates}
        if not tenants:
            return None
        if len(tenants) > 1:
            raise unauthorized()
        (tenant,) = tenants
        if tenant not in self._certificates:
            self._certificates[tenant] = self._identity(tenant, None, None, None, None, frozenset({"inference"}))
        return self._certificates[tenant]

    def _identity(
        self,
        name: str,
        key: Key | None,
        subject: str | None,
        models: tuple[str, ...] | None,
        limits: Limits | None,
        scopes: frozenset[str],
    ) -> Identity | None:
        tenant = self._config.tenants.get(name)
        if tenant is None:
            if not self._config.auth.undeclared_tenants and "admin" not in scopes:
                return None
            tenant = Tenant()
        allowed = [frozenset(m) for m in (tenant.models, models) if m is not None]
        holders = [Holder(f"tenant:{name}", tenant.limits)]
        if key is not None and limits is not None and limits != Limits():
            holders.append(Holder(f"key:{key.first}", limits))  # one allowance, however often the key is rotated
        every = [h.allowance for h in holders]
        return Identity(
            name,
            None if key is None else key.id,
            subject,
            frozenset.intersection(*allowed) if allowed else None,
            scopes,
            tuple(holders),
            tenant.weight,
            tenant.priority,
            min((a.max_output for a in every if a.max_output is not None), default=None),
            min((a.max_context for a in every if a.max_context is not None), default=None),
        )


def credential(fields: Mapping[str, str]) -> str | None:
    """The key or token of a request; None without one, and where two that differ leave open which is meant."""
    scheme, _, bearer = fields.get("authorization", "").partition(" ")
    token = bearer.strip() if scheme.lower() == "bearer" else ""
    key = fields.get("x-api-key", "")
    if token and key and token != key:
        return None
    return token or key or None


def secret_of(folder: Path) -> bytes:
    """The gateway's own secret, made on first use; salts and logged hashes are keyed with it.

    Raises:
        SetpointError: it cannot be read.
    """
    path = folder / "secret"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(fd, "wb") as file:
                file.write(os.urandom(32))
        secret = path.read_bytes()
    except OSError as error:
        raise SetpointError(f"The secret {path} cannot be read: {(error.strerror or 'no').lower()}.") from None
    if len(secret) != 32:
        raise SetpointError(f"The secret {path} is damaged.", fix="Remove the file; caches and logs start afresh.")
    return secret


def cache_salt(secret: bytes, tenant: str) -> str:
    """What keeps a tenant's cached prefixes its own: a keyed hash over the framed name, so that no two collide."""
    name = tenant.encode()
    framed = b"setpoint cache salt" + len(name).to_bytes(4, "big") + name
    return base64.urlsafe_b64encode(hmac.digest(secret, framed, hashlib.sha256)[:24]).decode()


def keyed_mark(secret: bytes, text: str) -> str:
    """What stands in a record for a value that must not: equal for equal values, no way back without the key."""
    return blake2b(text.encode(), key=secret, digest_size=8).hexdigest()
