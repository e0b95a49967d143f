"""The null server's answers are whole, however often and however badly it is asked."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from setpoint.protocol.answer import AnswerReader
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect
from setpoint.testing.serve import running


@pytest.fixture(params=["0", "0.002"], ids=["at once", "paced"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with running("setpoint.testing.null_server", ("--tokens", "3", "--interval", request.param)) as (url, _):
        found = urlsplit(url).port
        assert found is not None
        yield found


def test_each_request_on_a_connection_is_answered_in_full(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(3):
        connection.request("POST", "/v1/chat/completions", b"{}")
        response = connection.getresponse()
        reader = AnswerReader(Dialect.CHAT)
        reader.response(response.status, response.headers["content-type"])
        reader.feed(response.read(), 0.0)
        judgement = reader.end(0.0)
        assert judgement.outcome is Outcome.LENGTH
        assert len(judgement.observed.chunk_s) == judgement.observed.completion_tokens == 3
    connection.request("GET", "/v1/models")
    assert [model["id"] for model in json.load(connection.getresponse())["data"]] == ["null"]
    connection.close()


def test_garbage_ends_its_connection_and_no_other(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as bad:
        bad.sendall(b"\x16\x03\x01\x00\x01 not http\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert bad.recv(100) == b""
    test_each_request_on_a_connection_is_answered_in_full(port)


def test_a_client_that_leaves_in_the_middle_harms_nobody(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as leaving:
        leaving.sendall(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    test_each_request_on_a_connection_is_answered_in_full(port)
