"""Base URLs: what is taken, and what is a mistake."""

import errno
import socket
import ssl

import pytest

from setpoint.client.address import Address, describe_failure, failure_remedy, normal_base_url, parse_base_url
from setpoint.errors import UsageError


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        ("http://127.0.0.1:8000", Address("127.0.0.1", 8000, tls=False, prefix=""), "127.0.0.1:8000"),
        ("127.0.0.1:8000", Address("127.0.0.1", 8000, tls=False, prefix=""), "127.0.0.1:8000"),
        ("localhost", Address("localhost", 80, tls=False, prefix=""), "localhost"),
        ("https://host/v1", Address("host", 443, tls=True, prefix=""), "host"),
        ("https://HOST:443/v1/", Address("host", 443, tls=True, prefix=""), "host"),
        ("https://host/a/b/v1", Address("host", 443, tls=True, prefix="/a/b"), "host"),
        ("http://[::1]:8000/", Address("::1", 8000, tls=False, prefix=""), "[::1]:8000"),
        ("https://bücher.example", Address("xn--bcher-kva.example", 443, tls=True, prefix=""), "xn--bcher-kva.example"),
    ],
)
def test_a_base_url_is_taken_apart(url: str, address: Address, authority: str) -> None:
    assert parse_base_url(url) == address
    assert address.authority == authority
    assert parse_base_url(normal_base_url(url)) == address


@pytest.mark.parametrize(
    "url",
    [
        "", "http://", "ftp://host", "unix:///socket", "http:/127.0.0.1:8000", "http:127.0.0.1", "http://host:port",
        "http://host:0", "http://host:70000", "http://ho st", "http://a..b", "http://[::1", "http://host/a b",
        "http://host/ä", "http://host?api-version=1", "http://host/v1#x",
    ],
)  # fmt: skip
def test_anything_else_is_a_mistake_that_is_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_base_url(url)
    assert repr(url) in caught.value.message
    assert caught.value.fix


@pytest.mark.parametrize("url", ["http://user:secret@host", "user:secret@host:99999999", "http://:secret@host"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="carries credentials") as caught:
        parse_base_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name not resolved"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "name not resolved"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 80)"), "connection refused"),
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 80)"), "no route to host"),
        (OSError(errno.EMFILE, "Too many open files"), "too many open files"),
        (TimeoutError(), "connection timed out"),
        (ssl.SSLError(1, "x"), "TLS failure: handshake"),
        (ValueError("secret"), "ValueError"),
    ],
)
def test_a_failure_is_described_without_addresses_or_content(error: Exception, reason: str) -> None:
    assert describe_failure(error) == reason


def test_what_has_a_known_remedy_gets_it() -> None:
    assert "host name" in failure_remedy("name not resolved")
    assert failure_remedy("something new") == ""
