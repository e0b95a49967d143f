"""A head that was taken before is known again, and nothing else is."""

import pytest

from setpoint.gateway.incoming import Request
from setpoint.gateway.known_head import MAX_KNOWN_BYTES, KnownHead, known_head

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\nauthorization: Bearer k\r\n\r\n"


def whole(body: bytes) -> bytes:
    return HEAD % len(body) + body


def request(**fields: str) -> Request:
    known = {"host": "a", "content-length": "2", "authorization": "Bearer k"} | fields
    return Request("POST", "/v1/chat/completions", known, b"{}", keep_alive=True, http_1_0=False, received_s=0.0)


@pytest.fixture
def known() -> KnownHead:
    made = known_head(whole(b"{}"), request())
    assert made is not None
    return made


@pytest.mark.parametrize("body", [b"", b"{}", b'{"a":1}', b"x" * 70_000])
def test_the_same_head_with_any_length_is_read(known: KnownHead, body: bytes) -> None:
    found = known.read(whole(body), 5.0)
    assert found is not None
    assert (found.body, found.received_s, found.fields["authorization"]) == (body, 5.0, "Bearer k")


@pytest.mark.parametrize(
    "data",
    [
        whole(b"{}") + b"G",  # the beginning of a next one
        whole(b"{}")[:-1],
        whole(b"{}").replace(b"Bearer k", b"Bearer l"),
        whole(b"{}").replace(b": 2", b": +2"),
        whole(b"{}").replace(b": 2", b": 2 "),
        whole(b"{}").replace(b": 2", b": 2, 2"),
        whole(b"{}").replace(b": 2", b": 0x2"),
        whole(b"{}").replace(b": 2", b": \xb2"),
        whole(b"{}").replace(b": 2", b": "),
        whole(b"{}").replace(b": 2", b": 2\r\ntransfer-encoding: chunked"),
        whole(b"{}").replace(b": 2", b": " + b"0" * 12 + b"2"),
        b"\r\n" + whole(b"{}"),
    ],
)
def test_anything_else_is_left_to_the_parser(known: KnownHead, data: bytes) -> None:
    assert known.read(data, 0.0) is None


def test_what_is_remembered_is_small() -> None:
    """A connection keeps it for as long as it lives: no body, and no large head."""
    sent = request()
    made = known_head(whole(b"{}"), sent)
    assert made is not None
    assert made._request.body == b""
    assert sent.body == b"{}"
    large = HEAD.replace(b"Bearer k", b"k" * MAX_KNOWN_BYTES) % 2 + b"{}"
    assert known_head(large, sent) is None


def test_only_plain_requests_are_remembered() -> None:
    chunked = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    assert known_head(chunked, request()) is None
    assert known_head(whole(b"{}"), request(expect="100-continue")) is None
    assert known_head(whole(b"{}") + b"x", request()) is None
    closing = request()
    closing.keep_alive = False
    assert known_head(whole(b"{}"), closing) is None
    certified = request()
    certified.certificate = ("name",)
    assert known_head(whole(b"{}"), certified) is None
