"""TLS towards clients: the server's certificate, renewed while it serves, and whom a client's certificate names."""

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setpoint.errors import SetpointError
from setpoint.gateway.config import Tls

_NAMES = ("DNS", "URI", "email")


class Certificates:
    """A server's TLS context whose certificate and client authorities can be renewed while it serves.

    Args:
        tls: Files.

    Raises:
        SetpointError: they cannot be used.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        if tls.client_ca is not None:
            optional = tls.client_certificates == "optional"
            self.context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
        self._seen: tuple[int, ...] = ()
        self.renew()

    def renew(self) -> None:
        """Takes the files as they are now, if they have changed; connections keep what they began with.

        An authority that is added is trusted at once; one that is taken out of the file, at the next start.

        Raises:
            SetpointError: they cannot be used; the old ones stay.
        """
        tls = self._tls
        try:
            files = [Path(name) for name in (tls.certificate, tls.key, tls.client_ca) if name is not None]
            seen = tuple(file.stat().st_mtime_ns for file in files)
            if seen != self._seen:
                self.context.load_cert_chain(tls.certificate, tls.key)
                if tls.client_ca is not None:
                    self.context.load_verify_locations(tls.client_ca)
                self._seen = seen
        except OSError as error:
            raise SetpointError(f"The certificate cannot be used: {error.strerror or type(error).__name__}.") from None


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What a client's verified certificate says.

    Attributes:
        names: DNS names, URIs and mail addresses; its common name where it has none of these.
        until_s: End of its validity, Unix time. A connection may outlive it.
    """

    names: tuple[str, ...]
    until_s: float

    def valid_names(self) -> tuple[str, ...]:
        """The names, as long as the certificate is valid."""
        return self.names if time.time() < self.until_s else ()


def client_certificate(peer: Mapping[str, Any] | None) -> ClientCertificate | None:
    """What ``ssl.SSLSocket.getpeercert`` gave, read; None where no certificate was shown."""
    if not peer:
        return None
    names = tuple(str(value) for kind, value in peer.get("subjectAltName", ()) if kind in _NAMES)
    if not names:
        pairs = (pair for part in peer.get("subject", ()) for pair in part)
        names = tuple(str(value) for kind, value in pairs if kind == "commonName")
    return ClientCertificate(names, ssl.cert_time_to_seconds(str(peer["notAfter"])))
