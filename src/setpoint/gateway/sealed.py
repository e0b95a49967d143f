"""Answers as they may stand in Redis: AES-256-GCM, with a key that only who has the gateways' secret can derive."""

import hmac
import os
from hashlib import sha256

from setpoint.errors import UsageError
from setpoint.gateway.idempotency import Named

NONCE_BYTES = 12


class Sealed:
    """Seals and opens.

    Args:
        secret: Of the gateways.

    Raises:
        UsageError: the cryptography library is missing.
    """

    def __init__(self, secret: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
        except ImportError:
            raise UsageError("Answers in Redis need cryptography.", fix="Install setpoint[gateway].") from None
        self._secret, self._cipher, self._invalid = secret, AESGCM, InvalidTag

    def _key(self, name: Named) -> bytes:
        """One of this name's own, so that few nonces are drawn under any."""
        return hmac.digest(self._secret, b"setpoint idempotency answer" + name.key, sha256)

    def seal(self, name: Named, kind: str, body: bytes) -> bytes:
        """An answer that only opens under the same key and for the same request."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher(self._key(name)).encrypt(nonce, kind.encode() + b"\0" + body, name.request)

    def open(self, name: Named, data: bytes) -> tuple[str, bytes] | None:
        """Content type and body; None where it was not sealed for this."""
        try:
            plain = self._cipher(self._key(name)).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name.request)
        except (self._invalid, ValueError):
            return None
        kind, _, body = plain.partition(b"\0")
        return kind.decode(), body
