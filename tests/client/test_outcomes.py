"""Every outcome, seen over a real socket."""

import asyncio
from typing import Any

import pytest
from tests.client.server import (
    END,
    STREAM,
    Answer,
    Run,
    Wire,
    ask,
    chunk,
    client_of,
    planned,
    saying,
    serving,
    target,
    whole,
)

from setpoint.client.client import Client
from setpoint.client.limits import PhaseTimeouts
from setpoint.protocol.conformance import (
    DONE,
    MESSAGE_STOP,
    ROLE,
    START,
    STOP,
    chat,
    ended,
    events,
    say,
    sse,
    text_block,
    tool,
    usage,
)
from setpoint.protocol.corpus import CORPUS
from setpoint.protocol.requests import Asked
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.target import Dialect
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, FaultKind, Script

HELLO = sse(ROLE, say("Hel"), say("lo"), STOP, usage(9, 2), DONE)


def streamed(*payloads: object) -> Answer:
    return saying(STREAM, chunk(sse(*payloads)), END)


@pytest.mark.parametrize(
    ("answer", "outcome", "error"),
    [
        (streamed(say("Hi"), STOP, DONE), Outcome.COMPLETE, None),
        (streamed(say("Hi"), chat(finish="length"), DONE), Outcome.LENGTH, None),
        (saying(whole(b"{}", 429, extra="retry-after: 2\r\n")), Outcome.REJECTED, "HTTP 429"),
        (saying(whole(b"{}", 503)), Outcome.REJECTED, "HTTP 503"),
        (saying(whole(b'{"error":{"type":"too_long"}}', 400)), Outcome.REFUSED, "HTTP 400 too_long"),
        (saying(whole(b"oops", 500)), Outcome.ERROR, "HTTP 500"),
        (saying(whole(b"", 307, extra="location: /x\r\n")), Outcome.ERROR, "HTTP 307, a redirect"),
        (streamed(say("Hi"), {"error": {"type": "oom"}}), Outcome.ERROR, "in-band oom"),
        (streamed(say("Hi"), DONE), Outcome.TRUNCATED, "without a finish reason"),
        (streamed(say("Hi"), STOP), Outcome.TRUNCATED, "without its terminal event"),
        (streamed(ROLE, STOP, usage(9, 3), DONE), Outcome.EMPTY, "nothing visible in 3 tokens"),
        (saying(whole(b"", 200)), Outcome.EMPTY, "empty body"),
        (streamed(tool(0, "a", "f", '{"x": '), STOP, DONE), Outcome.MALFORMED, "tool arguments"),
        (saying(whole(b"<html>hi</html>", 200, "text/html")), Outcome.MALFORMED, "not the protocol"),
        (
            streamed(chat({"reasoning_content": "hm"}), chat(finish="length"), usage(9, 3), DONE),
            Outcome.REASONING_EXHAUSTED,
            "reasoning",
        ),
    ],
)
def test_each_answer_has_its_outcome(run: Run, answer: Answer, outcome: Outcome, error: str | None) -> None:
    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            row = await ask(client)
            assert row.outcome is outcome
            assert (row.error is None) == (error is None)
            assert error is None or error in str(row.error)
            assert row.within is None

    run(work())


@pytest.mark.parametrize(
    ("reason", "counted", "outcome"),
    [
        ("length", 8, Outcome.LENGTH),
        ("length", 7, Outcome.LENGTH),  # servers differ by one in what they count
        ("length", 6, Outcome.TRUNCATED),
        ("length", None, Outcome.LENGTH),  # not known to be short
        ("stop", 6, Outcome.COMPLETE),  # the model made it as long as it is
    ],
)
def test_an_answer_that_is_cut_before_its_limit_is_truncated(
    run: Run, reason: str, counted: int | None, outcome: Outcome
) -> None:
    """A full context says ``length`` as the limit does; nobody asked for that cut."""
    count = () if counted is None else (usage(9, counted),)

    async def work() -> None:
        answer = streamed(say("Hi"), chat(finish=reason), *count, DONE)
        async with serving(answer) as server, client_of(server.url) as client:
            row = await ask(client, tokens=8)
            assert row.outcome is outcome
            assert row.finish_reason == reason
            assert (row.error is None) == row.outcome.answered
            assert row.outcome.answered or "after 6 of the 8 tokens" in str(row.error)

    run(work())


def test_an_answer_of_each_dialect_is_read_in_full(run: Run) -> None:
    completions = sse(*({"choices": [{"index": 0, "text": t, "finish_reason": None}]} for t in ("Hel", "lo")))
    completions += sse({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}, usage(9, 2), DONE)
    messages = events(START, *text_block("Hel", "lo"), ended("end_turn"), MESSAGE_STOP)
    vectors = b'{"object":"list","data":[{"embedding":[0.5]}],"usage":{"prompt_tokens":9}}'
    cases = {
        Dialect.CHAT: (STREAM + chunk(HELLO) + END, "Hello", b"POST /v1/chat/completions HTTP/1.1"),
        Dialect.COMPLETIONS: (STREAM + chunk(completions) + END, "Hello", b"POST /v1/completions HTTP/1.1"),
        Dialect.MESSAGES: (STREAM + chunk(messages) + END, "Hello", b"POST /v1/messages HTTP/1.1"),
        Dialect.EMBEDDINGS: (whole(vectors), "", b"POST /v1/embeddings HTTP/1.1"),
    }

    async def work() -> None:
        for dialect, (data, text, line) in cases.items():
            async with serving(saying(data)) as server, client_of(server.url + "/v1", dialect) as client:
                row, answer = await client.exchange(b"{}", planned(client), keep_text=True)
                assert row.outcome is Outcome.COMPLETE
                assert answer is not None
                assert answer.text == text
                assert row.prompt_tokens == 9
                assert server.requests[0].startswith(line)

    run(work())


def test_each_dialect_sends_its_key_and_its_host(run: Run) -> None:
    async def work() -> None:
        for dialect, field in ((Dialect.CHAT, b"authorization: Bearer k"), (Dialect.MESSAGES, b"x-api-key: k")):
            async with serving(saying(whole(b"{}", 429))) as server:
                client = Client(target(server.url, dialect, api_key="k"))
                await ask(client)
                await client.close()
                lines = server.requests[0].split(b"\r\n\r\n")[0].split(b"\r\n")
                assert field in lines
                assert b"host: 127.0.0.1:%d" % server.port in lines
                assert b"accept-encoding: identity" in lines

    run(work())


def test_retry_after_is_seconds_or_unknown(run: Run) -> None:
    given = {"2": 2.0, "0.5": 0.5, "nan": None, "inf": None, "-1": None, "Wed, 21 Oct 2026 07:28:00 GMT": None}

    async def work() -> None:
        for value, expected in given.items():
            answer = saying(whole(b"{}", 429, extra=f"retry-after: {value}\r\n"))
            async with serving(answer) as server, client_of(server.url) as client:
                assert (await ask(client)).retry_after_s == expected

    run(work())


def test_the_corpus_is_judged_on_the_wire_as_in_memory(run: Run) -> None:
    cases = [case for case in CORPUS if not case.broken]

    async def work() -> None:
        async def answer(wire: Wire) -> None:
            case = cases[int(wire.body)]
            status, body = case.status, case.body
            kind = f"content-type: {case.content_type}\r\n" if case.content_type else ""
            await wire.send(f"HTTP/1.1 {status} x\r\n{kind}transfer-encoding: chunked\r\n\r\n".encode())
            for start in range(0, len(body), 97):
                await wire.send(chunk(body[start : start + 97]))
            await wire.send(END)

        async with serving(answer) as server:
            for dialect in Dialect:
                async with client_of(server.url, dialect) as client:
                    for number, case in enumerate(cases):
                        if case.dialect is dialect:
                            row = await ask(client, body=b"%d" % number)
                            assert row.outcome is case.outcome, case.name

    run(work())


def test_a_broken_connection_is_an_error_before_the_answer_and_truncated_in_it(run: Run) -> None:
    async def before(wire: Wire) -> None:
        wire.reset()

    async def during(wire: Wire) -> None:
        await wire.send(STREAM, chunk(sse(say("Hi"))))
        wire.writer.close()

    async def after(wire: Wire) -> None:
        await wire.send(STREAM, chunk(HELLO))  # all but the end of the body
        wire.writer.close()

    async def work() -> None:
        for answer, outcome in (
            (before, Outcome.ERROR),
            (during, Outcome.TRUNCATED),
            (after, Outcome.COMPLETE),
        ):
            async with serving(answer) as server, client_of(server.url) as client:
                row = await ask(client)
                assert row.outcome is outcome, row.error

    run(work())


@pytest.mark.parametrize("phase", ["connect", "first_token", "first_token_after_headers", "gap", "total"])
def test_a_timeout_names_the_phase_whose_limit_passed(run: Run, phase: str) -> None:
    limit = phase.removesuffix("_after_headers")

    async def answer(wire: Wire) -> None:
        if phase == "first_token_after_headers":
            await wire.send(STREAM, chunk(sse(ROLE)))
        elif phase == "gap":
            await wire.send(STREAM, chunk(sse(say("Hi"))))
        elif phase == "total":
            await wire.send(STREAM)
            while not wire.reader.at_eof():
                await wire.send(chunk(sse(say("Hi"))))
                await asyncio.sleep(0.01)
        await wire.gone()

    async def work() -> None:
        # Every other limit is far away: a limit that is only looked at when another one passes would not be seen.
        limits = PhaseTimeouts(**{"connect_s": 50.0, "first_token_s": 50.0, "gap_s": 50.0, limit + "_s": 0.3})
        async with serving(answer) as server:
            url = server.url.replace("http:", "https:") if phase == "connect" else server.url
            async with client_of(url, timeouts=limits) as client:
                row = await ask(client)
            assert row.outcome is Outcome.TIMEOUT
            assert row.within == limit
            assert row.error == f"{limit.replace('_', ' ')} limit passed"
            assert (row.sent_s is None) == (phase == "connect")
            await server.until_closed(1)  # the client gave its socket up

    run(work())


def test_an_answer_that_never_closes_its_body_is_complete_at_its_own_end(run: Run) -> None:
    async def answer(wire: Wire) -> None:
        await wire.send(STREAM, chunk(HELLO))
        await wire.gone()

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            row = await ask(client)
            assert row.outcome is Outcome.COMPLETE
            assert row.done_s == row.last_token_s  # not when the client gave up waiting for the body's end
            await server.until_closed(1)

    run(work())


FAULTS = {
    FaultKind.STALL: Outcome.TIMEOUT,
    FaultKind.FREEZE: Outcome.TIMEOUT,
    FaultKind.SLOW: Outcome.LENGTH,
    FaultKind.TRUNCATE: Outcome.TRUNCATED,
    FaultKind.RESET: Outcome.TRUNCATED,
    FaultKind.ERROR_EVENT: Outcome.ERROR,
    FaultKind.REJECT: Outcome.REJECTED,
    FaultKind.BUSY: Outcome.REJECTED,
    FaultKind.FAIL: Outcome.ERROR,
    FaultKind.GARBAGE: Outcome.MALFORMED,
    FaultKind.EMPTY: Outcome.EMPTY,
    FaultKind.REASONING: Outcome.REASONING_EXHAUSTED,
    FaultKind.BAD_TOOL: Outcome.MALFORMED,
}


@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.COMPLETIONS, Dialect.MESSAGES])
def test_each_fault_of_the_fake_engine_has_its_outcome_in_each_dialect(run: Run, dialect: Dialect) -> None:
    kinds = [k for k in FAULTS if dialect is not Dialect.COMPLETIONS or k is not FaultKind.BAD_TOOL]
    seconds = {FaultKind.STALL: 30.0, FaultKind.SLOW: 0.01}
    faults = tuple(
        Fault(kind=kind, first=number, last=number, seconds=seconds.get(kind, 1.0)) for number, kind in enumerate(kinds)
    )
    body = Asked(dialect, "fake").body([{"role": "user", "content": "one two three"}], 4)

    async def work(url: str) -> None:
        async with client_of(url, dialect) as client:
            for number, kind in enumerate(kinds):
                silent = kind in (FaultKind.STALL, FaultKind.FREEZE)
                client.timeouts = PhaseTimeouts(first_token_s=0.3, gap_s=0.3) if silent else PhaseTimeouts()
                row = await ask(client, number, body)
                assert row.outcome is FAULTS[kind], (kind, row.error)
            row = await ask(client, len(kinds), body)
            assert row.outcome is Outcome.LENGTH
            assert row.prompt_tokens == 3 + 8

    with fake_engine(Script(faults=faults)) as engine:
        run(work(engine.url))


def test_a_process_that_dies_is_an_error_then_refuses(run: Run) -> None:
    body = Asked(Dialect.CHAT, "fake").body([{"role": "user", "content": "one"}], 4)

    async def work(url: str) -> None:
        async with client_of(url) as client:
            rows: list[Exchange] = [await ask(client, number, body) for number in range(3)]
        assert [r.outcome for r in rows] == [Outcome.LENGTH, Outcome.ERROR, Outcome.ERROR]
        assert rows[2].error == "connection refused"
        assert rows[2].connected_s is None
        assert rows[2].sent_s is None

    with fake_engine(Script(faults=(Fault(kind=FaultKind.DIE, first=1),))) as engine:
        run(work(engine.url))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ('{"zzz":' + "[" * 100_000, "not the protocol"),
        ('{"choices":[],"usage":{"completion_tokens":99999999999999999999999}}', "not the protocol"),
        ('{"choices":[],"usage":{"prompt_tokens":-1}}', "not the protocol"),
    ],
)
def test_values_that_no_record_can_hold_are_malformed(run: Run, event: str, reason: str) -> None:
    async def work() -> None:
        async with serving(streamed(say("Hi"), event, STOP, DONE)) as server, client_of(server.url) as client:
            row: Any = await ask(client)
            assert row.outcome is Outcome.MALFORMED
            assert reason in row.error
            assert "[[" not in row.error

    run(work())
