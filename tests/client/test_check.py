"""Whether a target answers, found out before a run: one clear message for each way in which it does not."""

import socket

import pytest
from tests.client.server import END, STREAM, Answer, Run, Wire, chunk, saying, serving, target, whole

from setpoint.client.check import check, resolve_model
from setpoint.errors import TargetError
from setpoint.protocol.conformance import DONE, chat, say, sse, usage
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect, Target
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script


def models(*names: str) -> bytes:
    return whole(b'{"data":[' + b",".join(b'{"id":"%b"}' % name.encode() for name in names) + b"]}")


async def message_of(there: Target, timeout_s: float = 20.0) -> str:
    with pytest.raises(TargetError) as caught:
        await check(there, timeout_s=timeout_s)
    assert caught.value.fix
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dialect", [d for d in Dialect if d is not Dialect.RESPONSES])  # not asked by the client
def test_an_engine_that_answers_passes(run: Run, dialect: Dialect) -> None:
    async def work(url: str) -> None:
        row = await check(Target(url, dialect, "fake", api_key="right"))
        assert row.outcome.answered
        assert row.warmup

    with fake_engine(Script(api_key="right")) as engine:
        run(work(engine.url))


def test_an_engine_that_hides_its_first_tokens_passes(run: Run) -> None:
    async def work(url: str) -> None:
        assert (await check(Target(url, Dialect.CHAT, "fake"))).outcome is Outcome.REASONING_EXHAUSTED

    with fake_engine(Script(reasoning_tokens=50)) as engine:
        run(work(engine.url))


def test_an_engine_whose_two_tokens_show_nothing_passes(run: Run) -> None:
    silent = sse(chat({"content": ""}, finish="length"), usage(9, 2), DONE)

    async def work() -> None:
        async with serving(saying(STREAM, chunk(silent), END)) as server:
            assert (await check(target(server.url))).outcome is Outcome.EMPTY

    run(work())


def test_a_wrong_key_and_a_wrong_model_are_told_apart(run: Run) -> None:
    async def work(url: str) -> None:
        for key, words in ((None, "a key is needed"), ("wrong", "the key was not accepted")):
            there = Target(url, Dialect.CHAT, "fake", api_key=key)
            with pytest.raises(TargetError, match=rf"HTTP 401 .invalid_api_key., {words}.*--api-key-env") as caught:
                await resolve_model(there)
            assert "wrong" not in str(caught.value)
            assert "--api-key-env" in await message_of(there)
        there = Target(url, Dialect.CHAT, "llama", api_key="right")
        with pytest.raises(TargetError, match=r"does not serve the model 'llama'; it lists fake.*--model"):
            await resolve_model(there)
        assert "model name 'llama'" in await message_of(there)
        assert (await resolve_model(Target(url, Dialect.CHAT, "", api_key="right"))).model == "fake"
        assert (await resolve_model(Target(url, Dialect.CHAT, "fake", api_key="right"))).model == "fake"

    with fake_engine(Script(api_key="right")) as engine:
        run(work(engine.url))


def test_a_choice_of_models_is_the_users(run: Run) -> None:
    async def work() -> None:
        async with serving(saying(models(*"abcdefg"))) as server:
            with pytest.raises(TargetError, match=r"serves a, b, c, d, e and 2 more.*--model"):
                await resolve_model(Target(server.url, Dialect.CHAT, ""))
        for listing in (whole(b"{}", 404), whole(b"<html>"), whole(b"[" * 100_000), models()):
            async with serving(saying(listing)) as server:
                with pytest.raises(TargetError, match=r"does not list its models.*--model"):
                    await resolve_model(Target(server.url, Dialect.CHAT, ""))
                named = target(server.url)
                assert await resolve_model(named) == named  # a server may serve what it does not list

    run(work())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (saying(whole(b"<html>nginx</html>", kind="text/html")), "is not an answer.*OpenAI- or Anthropic-compatible"),
        (saying(whole(b'{"status":"ok"}')), "is not an answer: the body has neither choices nor data.*compatible"),
        (saying(whole(b"")), "is not an answer: an empty body.*compatible"),
        (saying(b"HTTP/1.1 204 No Content\r\n\r\n"), "is not an answer: an empty body.*compatible"),
        (saying(b"-ERR unknown command\r\n"), "is not an answer: the response is not HTTP/1.1.*compatible"),
        (saying(whole(b"{}", 404)), "HTTP 404.*Check the URL"),
        (saying(whole(b"{}", 422)), "HTTP 422.*does not take this request"),
        (saying(whole(b"{}", 503)), "HTTP 503.*out of capacity or loading"),
        (saying(whole(b"{}", 500)), "HTTP 500.*log"),
        (saying(whole(b"", 308, extra="location: https://x/\r\n")), "HTTP 308, a redirect.*not followed"),
        (saying(STREAM, chunk(sse(say("Hi"))), END), "without a finish reason"),
    ],
)
def test_what_is_no_answer_is_one_clear_message(run: Run, answer: Answer, words: str) -> None:
    async def work() -> None:
        async with serving(answer) as server:
            with pytest.raises(TargetError, match=words):
                await check(target(server.url))
            message = await message_of(target(server.url))
            assert message.startswith(f"{server.url}/v1/chat/completions: ")

    run(work())


def test_a_redirect_says_where_to(run: Run) -> None:
    async def work() -> None:
        moved = saying(whole(b"", 301, extra="location: https://api.example/v1/models\r\n"))
        async with serving(moved) as server:
            with pytest.raises(TargetError, match=r"redirects to https://api.example/v1/models.*not followed"):
                await resolve_model(target(server.url))
            assert len(server.requests) == 1

    run(work())


def test_a_server_that_accepts_and_never_answers_or_stops_is_a_timeout(run: Run) -> None:
    async def silent(wire: Wire) -> None:
        await wire.gone()

    async def stalls(wire: Wire) -> None:
        await wire.send(STREAM, chunk(sse(say("Hi"))))
        await wire.gone()

    async def work() -> None:
        for answer, words in ((silent, "took the request and did not answer"), (stalls, "began to answer and stopped")):
            async with serving(answer) as server:
                assert words in await message_of(target(server.url), 0.6)
                await server.until_closed(1)
        async with serving(silent) as server:
            with pytest.raises(TargetError, match="no whole answer within"):
                await resolve_model(target(server.url), timeout_s=0.1)

    run(work())


def test_a_wrong_port_and_a_wrong_name(run: Run) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can answer there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        async def work() -> None:
            assert "connection refused. Nothing listens there" in await message_of(target(f"http://127.0.0.1:{port}"))
            assert "name not resolved. Check the host name" in await message_of(target("http://nowhere.invalid"))
            with pytest.raises(TargetError, match=r"name not resolved. Check the host name"):
                await resolve_model(target("http://nowhere.invalid"))

        run(work())
