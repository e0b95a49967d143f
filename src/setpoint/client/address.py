"""Where a base URL leads: host, port, TLS, and the prefix before ``/v1``."""

import os
import re
import socket
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
        if "@" in parts.netloc:  # first, so that no other message repeats them
            raise UsageError(
                "The URL carries credentials.", fix="Pass the key through an environment variable instead."
            )
        port, host = parts.port, (parts.hostname or "").encode("idna").decode("ascii")
    except ValueError as error:
        raise UsageError(f"The URL {url!r} cannot be read: {error}.", fix=_EXAMPLE) from None
    no_slashes = "://" not in url and re.match("https?:", url, re.IGNORECASE)  # a typing error, not a host "http"
    spelt = _HOST.fullmatch(host) and _PATH.fullmatch(parts.path)
    if parts.scheme not in ("http", "https") or no_slashes or not spelt or port == 0:
        raise UsageError(f"The URL {url!r} is not an HTTP address.", fix=_EXAMPLE)
    if parts.query or parts.fragment:
        raise UsageError(
            f"The URL {url!r} has a query or a fragment, which a base URL cannot keep.", fix="Leave it out."
        )
    path = parts.path.rstrip("/").removesuffix("/v1")
    tls = parts.scheme == "https"
    return Address(host, port or (443 if tls else 80), tls, path)


def normal_base_url(url: str) -> str:
    """The base URL as records keep it: scheme, authority and prefix, without ``/v1``."""
    address = parse_base_url(url)
    return f"{'https' if address.tls else 'http'}://{address.authority}{address.prefix}"


def tls_context(target: Target) -> ssl.SSLContext:
    """The TLS context that a target asks for: verified unless it says otherwise."""
    context = ssl.create_default_context()
    if target.ca_file is not None:
        try:
            context.load_verify_locations(target.ca_file)
        except OSError as error:  # what ssl raises for a file without certificates is one too
            reason = (
                "no certificate in it" if isinstance(error, ssl.SSLError) else os.strerror(error.errno or 0).lower()
            )
            raise UsageError(
                f"The authority {target.ca_file!r} cannot be used: {reason}.",
                fix="Give a PEM file of certificates with --ca-file.",
            ) from None
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def describe_failure(error: BaseException) -> str:
    """A short reason for a connection that failed, without addresses or payload."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS certificate not accepted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failure: {getattr(error, 'reason', None) or 'handshake'}"
    if isinstance(error, socket.gaierror):
        return "name not resolved"
    for kind, words in (
        (ConnectionRefusedError, "connection refused"),
        (ConnectionResetError, "connection reset"),
        (BrokenPipeError, "connection closed while sending"),
        (TimeoutError, "connection timed out"),
    ):
        if isinstance(error, kind):
            return words
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return type(error).__name__


def failure_remedy(reason: str) -> str:
    """What to do about a reason that ``describe_failure`` or a connection gave; empty when nothing is known."""
    return next((fix for found, fix in _REMEDIES if found in reason), "")


_EXAMPLE = "Give one such as http://127.0.0.1:8000 or https://host/v1."
_HOST = re.compile(r"[!-~]+")
_PATH = re.compile(r"[!-~]*")
_REMEDIES = (
    ("mismatch", "Use a host name that the certificate carries, or accept any certificate with --insecure."),
    ("certificate", "Give its authority with --ca-file, or accept any certificate with --insecure."),
    ("TLS", "Is this port TLS at all? Try http:// instead of https://."),
    ("refused", "Nothing listens there: check the address and that the server runs."),
    ("not resolved", "Check the host name."),
    ("connection reset", "Look at the server's log; if the port speaks TLS, use https://."),
    ("connection closed", "Look at the server's log; if the port speaks TLS, use https://."),
    ("not HTTP", "Is the port right, and is it http or https?"),
    ("timed out", "Check the address, and that no firewall lies between."),
)
