"""API keys: shown once, stored hashed, scoped, expiring, rotated with overlap.

A key is 256 random bits: a plain SHA-256 of it is as hard to turn back as the key is to guess, and is looked up in
one step, so that neither a comparison nor a slow hash leaks or costs time for a request.
"""

import hashlib
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from setpoint.errors import SetpointError, UsageError
from setpoint.gateway.config import Limits

PREFIX = "sp"
MAX_KNOWN_CHARS = 256  # of a text whose digest is remembered; no key of ours is longer
_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, tenant TEXT NOT NULL, note TEXT NOT NULL,
    models TEXT, scopes TEXT NOT NULL, limits TEXT NOT NULL,
    created REAL NOT NULL, expires REAL, revoked REAL, replaces TEXT
)
"""
_COLUMNS = "id, tenant, note, models, scopes, limits, created, expires, revoked, replaces"


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key; the key itself is not.

    Attributes:
        id: Public part; stands in logs.
        tenant: Whose it is.
        note: In the owner's words.
        models: Models it may use; None is all of the tenant's.
        scopes: ``inference``, ``admin``.
        limits: Its own, below the tenant's.
        created: Unix time.
        expires: Unix time; None never.
        revoked: Unix time; None is in force.
        replaces: The key that it was made to replace.
        first: The key that its chain of replacements began with, itself without one. All of the chain share what they
            may use.
    """

    id: str
    tenant: str
    note: str
    models: tuple[str, ...] | None
    scopes: tuple[str, ...]
    limits: Limits
    created: float
    expires: float | None
    revoked: float | None
    replaces: str | None
    first: str

    def valid(self, now: float) -> bool:
        """Whether it opens anything at a Unix time."""
        return self.revoked is None and (self.expires is None or now < self.expires)


def digest_of(text: str) -> bytes:
    """What is stored of a key."""
    return _known_digest(text) if len(text) <= MAX_KNOWN_CHARS else _digest(text)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


_known_digest = lru_cache(maxsize=1024)(_digest)  # callers come again and again with the same key


class KeyStore:
    """The keys of one gateway.

    Args:
        folder: The gateway's state; created when absent.

    Raises:
        SetpointError: it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path = folder / "keys.db"
            with self._connected() as db:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute(_SCHEMA)
            self._path.chmod(0o600)
        except (OSError, sqlite3.Error) as error:
            raise SetpointError(f"The keys in {folder} cannot be used: {error}.") from None
        self._version: object = None
        self._known: dict[bytes, Key] = {}
        self._read_at = 0.0
        self._reader = sqlite3.connect(self._path, timeout=10, isolation_level=None, check_same_thread=False)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._path, timeout=10, isolation_level=None)
        try:
            yield db
        finally:
            db.close()

    def create(
        self,
        tenant: str,
        *,
        note: str = "",
        models: tuple[str, ...] | None = None,
        scopes: tuple[str, ...] | None = None,
        limits: Limits | None = None,
        expires_in_s: float | None = None,
        replaces: str | None = None,
        overlap_s: float = 0.0,
    ) -> tuple[Key, str]:
        """A new key: its record, and the key, which is not to be had again.

        Args:
            tenant: Whose.
            note: In the owner's words.
            models: Models it may use; None is all.
            scopes: What it may do; None is inference.
            limits: Of its own; None is none.
            expires_in_s: Its life; None has no end.
            replaces: A key that ends ``overlap_s`` from now. Its tenant is the new key's, and what is None here is
                taken from it, the moment at which it expires included.
            overlap_s: How long both are valid.

        Raises:
            UsageError: the key to replace does not exist.
        """
        now = time.time()
        identifier = first = secrets.token_hex(5)
        expires = None if expires_in_s is None else now + expires_in_s
        if replaces is not None:
            old = next((key for key in self.list() if key.id == replaces), None)
            if old is None or not old.valid(now):
                raise UsageError(
                    f"There is no valid key {replaces!r} to replace.", fix="`setpoint keys list` shows them."
                )
            tenant, note, first = old.tenant, note or old.note, old.first
            models = old.models if models is None else models
            scopes = old.scopes if scopes is None else scopes
            limits = old.limits if limits is None else limits
            expires = old.expires if expires is None else expires
        scopes, limits = ("inference",) if scopes is None else scopes, limits or Limits()
        text = f"{PREFIX}-{identifier}-{secrets.token_urlsafe(32)}"
        key = Key(identifier, tenant, note, models, scopes, limits, now, expires, None, replaces, first)
        row = (
            key.id, digest_of(text), tenant, note, None if models is None else " ".join(models), " ".join(scopes),
            limits.model_dump_json(exclude_none=True), now, expires, None, replaces,
        )  # fmt: skip
        with self._connected() as db, db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(f"INSERT INTO keys VALUES ({','.join('?' * len(row))})", row)  # noqa: S608 - placeholders only
            if replaces is not None:
                end = now + overlap_s
                db.execute("UPDATE keys SET expires = min(coalesce(expires, ?), ?) WHERE id = ?", (end, end, replaces))
            db.execute("COMMIT")
        return key, text

    def revoke(self, identifier: str) -> None:
        """Ends a key now.

        Raises:
            UsageError: there is none, or it was revoked before.
        """
        with self._connected() as db:
            done = db.execute(
                "UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (time.time(), identifier)
            ).rowcount
        if not done:
            raise UsageError(f"There is no key {identifier!r} in force.", fix="`setpoint keys list` shows them.")

    def list(self) -> list[Key]:
        """All keys, oldest first."""
        with self._connected() as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM keys ORDER BY created").fetchall()  # noqa: S608 - a constant
        before = {str(row[0]): row[-1] for row in rows}
        return [_key(row, before) for row in rows]

    def find(self, text: str) -> Key | None:
        """The valid key with this text. A new key is found at once; an end of one is seen within a second."""
        now = time.monotonic()
        digest = digest_of(text)
        if now - self._read_at >= 1.0 or digest not in self._known:
            self._refresh(now)
        key = self._known.get(digest)
        return key if key is not None and key.valid(time.time()) else None

    def _refresh(self, now: float) -> None:
        self._read_at = now
        version = self._reader.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return
        rows = self._reader.execute(f"SELECT digest, {_COLUMNS} FROM keys").fetchall()  # noqa: S608 - a constant
        before = {str(row[1]): row[-1] for row in rows}
        self._known = {row[0]: _key(row[1:], before) for row in rows}
        self._version = version


def _key(row: tuple[object, ...], before: Mapping[str, object]) -> Key:
    """A row, given the key that each key replaced."""
    first = str(row[0])
    while (older := before.get(first)) is not None:
        first = str(older)
    identifier, tenant, note, models, scopes, limits, created, expires, revoked, replaces = row
    return Key(
        str(identifier),
        str(tenant),
        str(note),
        None if models is None else tuple(str(models).split()),
        tuple(str(scopes).split()),
        Limits.model_validate(msgspec.json.decode(str(limits))),
        float(str(created)),
        None if expires is None else float(str(expires)),
        None if revoked is None else float(str(revoked)),
        None if replaces is None else str(replaces),
        first,
    )
