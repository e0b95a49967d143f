"""Where a base URL leads: host, port, TLS, and the prefix before ``/v1``."""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from setpoint.errors import UsageError
from setpoint.records.target import Target


@dataclass(frozen=True, slots=True)
class Address:
    """A base URL taken apart.

    Attributes:
        host: Name or IP address, without brackets.
        port: TCP port.
        tls: Whether the scheme is https.
        prefix: Path before ``/v1``, without a trailing slash; often empty.
    """

    host: str
    port: int
    tls: bool
    prefix: str

    @property
    def authority(self) -> str:
        """The ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def parse_base_url(url: str) -> Address:
    """Takes ``http(s)://host[:port][/prefix][/v1]``.

    Raises:
        UsageError: anything else, with what was found.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"The URL {url!r} cannot be read: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"The URL {url!r} is not an HTTP address.",
            fix="Give one such as http://127.0.0.1:8000 or https://host/v1.",
        )
    if parts.username or parts.password:
        raise UsageError("The URL carries credentials.", fix="Pass the key through an environment variable instead.")
    path = parts.path.rstrip("/").removesuffix("/v1")
    tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if tls else 80), tls, path)


def normal_base_url(url: str) -> str:
    """The base URL as records keep it: scheme, authority and prefix, without ``/v1``."""
    address = parse_base_url(url)
    return f"{'https' if address.tls else 'http'}://{address.authority}{address.prefix}"


def tls_context(target: Target) -> ssl.SSLContext:
    """The TLS context that a target asks for: verified unless it says otherwise."""
    context = ssl.create_default_context()
    if target.ca_file is not None:
        context.load_verify_locations(target.ca_file)
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def describe_failure(error: BaseException) -> str:
    """A short reason for a connection that failed, without addresses or payload."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failure: {error.reason or 'handshake'}"
    for kind, words in (
        (ConnectionRefusedError, "connection refused"),
        (ConnectionResetError, "connection reset"),
        (BrokenPipeError, "connection closed while sending"),
        (TimeoutError, "connection timed out"),
    ):
        if isinstance(error, kind):
            return words
    if isinstance(error, OSError):
        name = type(error).__name__ if error.strerror is None else error.strerror.lower()
        return "name not resolved" if "name" in name and "known" in name else name
    return type(error).__name__
