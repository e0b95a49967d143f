"""TLS: verified, with one clear error for each way in which it fails."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
from tests.client.server import END, STREAM, Run, ask, chunk, client_of, saying, serving, target, whole

from setpoint.client.check import check, resolve_model
from setpoint.client.client import Client
from setpoint.errors import TargetError, UsageError
from setpoint.protocol.conformance import DONE, STOP, say, sse
from setpoint.records.exchange import Outcome

hello = saying(STREAM, chunk(sse(say("Hi"), STOP, DONE)), END)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def context_for(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_a_trusted_server_is_spoken_to_and_kept_alive(run: Run, authority: trustme.CA, ca_file: str) -> None:
    async def work() -> None:
        async with serving(hello, context_for(authority, "127.0.0.1")) as server:
            client = Client(target(server.url, ca_file=ca_file))
            rows = [await ask(client, number, body=b"x" * 1_000_000) for number in range(3)]
            await client.close()
            assert [r.outcome for r in rows] == [Outcome.COMPLETE] * 3
            assert [r.reused_connection for r in rows] == [False, True, True]
            for row in rows:
                assert row.sent_s is not None
                assert row.headers_s is not None
                assert row.started_s <= row.sent_s <= row.headers_s <= row.chunk_s[0]
            assert (await check(target(server.url, ca_file=ca_file))).outcome is Outcome.COMPLETE

    run(work())


@pytest.mark.parametrize(
    ("name", "trusted", "reason", "fix"),
    [
        ("127.0.0.1", False, "TLS certificate not accepted: unable to get local issuer certificate", "--ca-file"),
        ("other.example", True, "TLS certificate not accepted: IP address mismatch", "host name that the certificate"),
    ],
    ids=["unknown authority", "wrong name"],
)
def test_a_certificate_that_is_not_accepted_is_one_clear_error(
    run: Run, authority: trustme.CA, ca_file: str, name: str, trusted: bool, reason: str, fix: str
) -> None:
    async def work() -> None:
        async with serving(hello, context_for(authority, name)) as server:
            there = target(server.url, ca_file=ca_file if trusted else None)
            client = Client(there)
            row = await ask(client)
            await client.close()
            assert row.outcome is Outcome.ERROR
            assert str(row.error).startswith(reason)
            for asking in (check(there), resolve_model(there)):
                with pytest.raises(TargetError) as caught:
                    await asking
                assert reason in caught.value.message
                assert caught.value.message.count("\n") == 0
                assert ".." not in caught.value.message
                assert fix in caught.value.fix

    run(work())


def test_an_unverified_server_is_spoken_to_when_the_user_says_so(run: Run, authority: trustme.CA) -> None:
    async def work() -> None:
        async with serving(hello, context_for(authority, "other.example")) as server:
            client = Client(target(server.url, verify_tls=False))
            assert (await ask(client)).outcome is Outcome.COMPLETE
            await client.close()

    run(work())


def test_https_to_a_plain_port_says_so(run: Run) -> None:
    async def work() -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(whole(b"{}", 400))
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(TargetError, match=r"TLS failure: .*Try http://"):
            await check(target(f"https://127.0.0.1:{port}"))
        listener.close()

    run(work())


def test_http_to_a_tls_port_says_so(run: Run, authority: trustme.CA) -> None:
    async def work() -> None:
        async with serving(hello, context_for(authority, "127.0.0.1")) as server:
            with pytest.raises(TargetError, match="https"):
                await check(target(server.url.replace("https", "http")))

    run(work())


def test_a_server_that_never_shakes_hands_is_a_connect_timeout(run: Run) -> None:
    async def work() -> None:
        async with serving(hello) as server:
            with pytest.raises(TargetError, match=r"did not accept a connection .connect limit passed"):
                await check(target(server.url.replace("http", "https")), timeout_s=0.6)

    run(work())


@pytest.mark.parametrize(("content", "reason"), [(None, "no such file"), ("hello", "no certificate in it")])
def test_an_authority_that_cannot_be_used_is_a_mistake_of_the_user(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=reason):
        Client(target("https://127.0.0.1:1", ca_file=str(path)))


def test_the_client_offers_http11_only(run: Run, authority: trustme.CA, ca_file: str) -> None:
    context = context_for(authority, "127.0.0.1")
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def work() -> None:
        async with serving(hello, context) as server, client_of(server.url, timeouts=None) as plain:
            client = Client(target(server.url, ca_file=ca_file))
            assert (await ask(client)).outcome is Outcome.COMPLETE
            await client.close()
            assert plain.in_flight == 0

    run(work())
