"""The fake engine does what its script says, over a real socket."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from setpoint.client.client import Client
from setpoint.client.limits import PoolLimits
from setpoint.client.pending import Planned
from setpoint.protocol.judgement import Answer
from setpoint.protocol.requests import Asked
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.target import Dialect, Target
from setpoint.testing.fake_engine import FakeEngine, fake_engine
from setpoint.testing.script import Fault, FaultKind, Script
from setpoint.testing.serve import running

GENERATING = (Dialect.CHAT, Dialect.COMPLETIONS, Dialect.MESSAGES)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    uvloop.run(bounded())


@asynccontextmanager
async def client_of(
    engine: FakeEngine, dialect: Dialect = Dialect.CHAT, limits: PoolLimits | None = None
) -> AsyncIterator[Client]:
    client = Client(Target(engine.url, dialect, "fake"), limits=limits)
    try:
        yield client
    finally:
        await client.close()


async def ask(
    client: Client,
    words: str = "one two three",
    tokens: int = 4,
    **more: Any,  # noqa: ANN401
) -> tuple[Exchange, Answer]:
    body = Asked(client.target.dialect, "fake", **more).body([{"role": "user", "content": words}], tokens)
    planned = Planned(0, 0, 0, client.clock.now(), 3, tokens)
    row, answer = await client.exchange(body, planned, keep_text=True)
    assert answer is not None
    return row, answer


def post(engine: FakeEngine, path: str, body: object) -> tuple[int, dict[str, Any]]:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(engine.url + path, payload, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


async def metrics(client: Client) -> dict[str, float]:
    response = await client.fetch("GET", "/metrics")
    families = text_string_to_metric_families(response.body.decode())
    return {sample.name.removeprefix("vllm:"): sample.value for family in families for sample in family.samples}


@pytest.mark.parametrize("dialect", GENERATING)
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_has_the_scripted_length_text_and_usage(dialect: Dialect, stream: bool) -> None:
    async def work(engine: FakeEngine) -> None:
        async with client_of(engine, dialect) as client:
            row, answer = await ask(client, tokens=9, stream=stream)
            assert row.outcome is Outcome.COMPLETE  # it stops by itself after five
            assert answer.text == " one two three four five"
            assert (row.prompt_tokens, row.completion_tokens) == (3 + 2, 5)
            assert len(row.chunk_s) == (5 if stream else 1)
            row, answer = await ask(client, tokens=2, stream=stream)
            assert row.outcome is Outcome.LENGTH
            assert answer.text == " one two"

    with fake_engine(Script(output_tokens=5, template_tokens=2)) as engine:
        run(work(engine))


@pytest.mark.parametrize("honours", [True, False])
def test_a_forced_length_is_kept_where_the_engine_honours_it(honours: bool) -> None:
    async def work(engine: FakeEngine) -> None:
        async with client_of(engine) as client:
            row, _ = await ask(client, tokens=12, force_length=True)
            assert row.completion_tokens == (12 if honours else 5)

    with fake_engine(Script(output_tokens=5, honours_ignore_eos=honours)) as engine:
        run(work(engine))


@pytest.mark.parametrize("dialect", GENERATING)
@pytest.mark.parametrize("stream", [True, False])
def test_usage_is_left_out_when_the_script_says_so(dialect: Dialect, stream: bool) -> None:
    async def work(engine: FakeEngine) -> None:
        async with client_of(engine, dialect) as client:
            row, _ = await ask(client, stream=stream)
            assert row.outcome is Outcome.LENGTH
            assert (row.prompt_tokens, row.completion_tokens, row.tokens_source) == (None, None, "chunks")

    with fake_engine(Script(reports_usage=False)) as engine:
        run(work(engine))


@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.MESSAGES])
@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_comes_first_and_is_hidden(dialect: Dialect, stream: bool) -> None:
    async def work(engine: FakeEngine) -> None:
        async with client_of(engine, dialect) as client:
            row, answer = await ask(client, tokens=5, stream=stream)
            assert row.outcome is Outcome.LENGTH
            assert row.chunk_kinds == ("rrccc" if stream else "rc")
            assert answer.text == " three four five"

    with fake_engine(Script(reasoning_tokens=2)) as engine:
        run(work(engine))


WHOLE_FAULTS = {
    FaultKind.TRUNCATE: Outcome.TRUNCATED,
    FaultKind.ERROR_EVENT: Outcome.ERROR,
    FaultKind.RESET: Outcome.ERROR,
    FaultKind.EMPTY: Outcome.EMPTY,
    FaultKind.REASONING: Outcome.REASONING_EXHAUSTED,
    FaultKind.BAD_TOOL: Outcome.MALFORMED,
    FaultKind.GARBAGE: Outcome.MALFORMED,
    FaultKind.FAIL: Outcome.ERROR,
}


@pytest.mark.parametrize("dialect", GENERATING)
def test_a_fault_strikes_an_answer_in_one_piece_too(dialect: Dialect) -> None:
    kinds = [k for k in WHOLE_FAULTS if dialect is not Dialect.COMPLETIONS or k is not FaultKind.BAD_TOOL]

    async def work(engine: FakeEngine) -> None:
        async with client_of(
            engine, dialect, PoolLimits(max_idle=0)
        ) as client:  # on a kept connection a reset is retried
            for kind in kinds:
                row, _ = await ask(client, stream=False)
                assert row.outcome is WHOLE_FAULTS[kind], (kind, row.error)

    faults = tuple(Fault(kind=kind, first=n, last=n) for n, kind in enumerate(kinds))
    with fake_engine(Script(faults=faults)) as engine:
        run(work(engine))


@settings(deadline=None)
@given(first=st.integers(0, 9), every=st.integers(1, 5), span=st.none() | st.integers(0, 9))
def test_a_fault_strikes_from_its_first_to_its_last_request(first: int, every: int, span: int | None) -> None:
    last = None if span is None else first + span
    fault = Fault(kind=FaultKind.FAIL, first=first, every=every, last=last)
    struck = [number for number in range(40) if fault.strikes(number)]
    assert struck == list(range(first, 40 if last is None else last + 1, every))


def test_a_slow_first_token_and_a_stall_are_as_long_as_scripted() -> None:
    async def work(engine: FakeEngine) -> None:
        async with client_of(engine) as client:
            slow, _ = await ask(client)
            stalled, _ = await ask(client)
            assert slow.first_visible_s is not None
            assert slow.sent_s is not None
            assert slow.first_visible_s - slow.sent_s >= 0.2
            gaps = [b - a for a, b in zip(stalled.chunk_s, stalled.chunk_s[1:], strict=False)]
            assert max(gaps) >= 0.2
            assert gaps.index(max(gaps)) == 1  # in the middle of four

    faults = (
        Fault(kind=FaultKind.SLOW, last=0, seconds=0.21),
        Fault(kind=FaultKind.STALL, first=1, seconds=0.21),
    )
    with fake_engine(Script(faults=faults)) as engine:
        run(work(engine))


def test_prefill_and_decode_take_their_time() -> None:
    async def work(engine: FakeEngine) -> None:
        async with client_of(engine) as client:
            row, _ = await ask(client, tokens=3)
            assert row.sent_s is not None
            assert row.first_token_s is not None
            assert row.first_token_s - row.sent_s >= 5 * 0.02 + 0.03 - 0.005  # loop timers count whole milliseconds
            assert row.chunk_s[2] - row.chunk_s[0] >= 2 * 0.03 - 0.005

    with fake_engine(Script(template_tokens=2, prefill_token_s=0.02, decode_s=0.03)) as engine:
        run(work(engine))


def test_metrics_count_the_queue_the_tokens_and_the_cache() -> None:
    prompt = " ".join(f"w{i}" for i in range(40))

    async def work(engine: FakeEngine) -> None:
        async with client_of(engine) as client:
            asking = [asyncio.create_task(ask(client, prompt)) for _ in range(3)]
            seen = await metrics(client)
            while seen["num_requests_waiting"] < 2:
                seen = await metrics(client)
            assert seen["num_requests_running"] == 1
            assert seen["kv_cache_usage_perc"] == 1
            await asyncio.gather(*asking)
            seen = await metrics(client)
            assert seen["num_requests_waiting"] == seen["num_requests_running"] == 0
            assert seen["prompt_tokens_total"] == 3 * 48
            assert seen["generation_tokens_total"] == 3 * 4
            assert seen["prefix_cache_hits_total"] == 2 * 32  # whole blocks of 16 words

    with fake_engine(Script(slots=1, decode_s=0.1, prefix_cache=True)) as engine:
        run(work(engine))


def test_a_model_name_with_quotes_is_escaped_in_metrics() -> None:
    async def work(engine: FakeEngine) -> None:
        async with client_of(engine) as client:
            assert (await metrics(client))["num_requests_running"] == 0

    with fake_engine(Script(model='a "b" \\ c')) as engine:
        run(work(engine))


def test_a_client_that_leaves_frees_its_slot() -> None:
    async def work(engine: FakeEngine) -> None:
        async with client_of(engine) as client:
            frozen = asyncio.create_task(ask(client))
            running_now = 0.0
            while running_now < 1:
                running_now = (await metrics(client))["num_requests_running"]
            frozen.cancel()
            with pytest.raises(asyncio.CancelledError):
                await frozen
            row, _ = await ask(client)
            assert row.outcome is Outcome.LENGTH

    with fake_engine(Script(slots=1, faults=(Fault(kind=FaultKind.STALL, last=0, seconds=1000),))) as engine:
        run(work(engine))


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/chat/completions", b"{", 400, "invalid_request"),
        ("/v1/chat/completions", {"messages": "hello"}, 400, "invalid_request"),
        ("/v1/chat/completions", {"messages": [], "max_tokens": "many"}, 400, "invalid_request"),
        ("/v1/chat/completions", {"messages": [], "max_tokens": 0}, 400, "invalid_request"),
        ("/v1/chat/completions", {"messages": [], "model": "other"}, 404, "model_not_found"),
        ("/v1/chat/completions", {"messages": [], "max_tokens": 99, "ignore_eos": True}, 400, "exceed_context"),
        ("/v1/responses", {}, 404, "not_found"),
        ("/tokenize", b"[1]", 400, "invalid_request"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(path: str, body: object, status: int, kind: str) -> None:
    with fake_engine(Script(context_tokens=64)) as engine:
        found, answer = post(engine, path, body)
        assert found == status
        assert answer["error"]["type"].startswith(kind)
        assert post(engine, "/v1/chat/completions", {"messages": []})[0] == 200


def test_the_words_of_parts_and_of_a_system_prompt_count() -> None:
    parts = [{"type": "text", "text": "one two"}, {"type": "text", "text": "three"}]
    with fake_engine(Script(template_tokens=0)) as engine:
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": parts}]}
        assert post(engine, "/v1/chat/completions", asked)[1]["usage"]["prompt_tokens"] == 3
        asked = {"system": "be brief", "messages": [{"role": "user", "content": "hi"}]}
        assert post(engine, "/v1/messages", asked)[1]["usage"]["input_tokens"] == 3
        assert post(engine, "/v1/completions", {"prompt": "one two"})[1]["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize("member", ["content", "prompt"])
def test_a_word_is_a_token(member: str) -> None:
    with fake_engine() as engine:
        assert post(engine, "/tokenize", {member: "one two  three"}) == (200, {"tokens": [0, 1, 2]})
    with fake_engine(Script(tokenizer=False)) as engine:
        assert post(engine, "/tokenize", {member: "one"})[0] == 404


@pytest.mark.parametrize(
    "script",
    [
        '{"slots": 0}',
        '{"faults": [{"kind": "fail", "every": 0}]}',
        '{"faults": [{"kind": "explode"}]}',
        "{",
        '{"decode_s": -1}',
    ],
)
def test_a_script_that_makes_no_sense_is_refused(script: str) -> None:
    with (
        pytest.raises(RuntimeError, match="did not start"),
        running("setpoint.testing.fake_engine", ("--script", script)),
    ):
        pass


def test_a_script_survives_its_way_to_the_process() -> None:
    script = Script(faults=(Fault(kind=FaultKind.SLOW, every=3, seconds=0.5),), api_key="k", slots=3)
    assert msgspec.json.decode(msgspec.json.encode(script), type=Script) == script


def test_an_engine_that_dies_says_so_by_its_exit_code() -> None:
    script = msgspec.json.encode(Script(faults=(Fault(kind=FaultKind.DIE),))).decode()
    with running("setpoint.testing.fake_engine", ("--script", script)) as (url, child):
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            post(FakeEngine(url, child.pid), "/v1/chat/completions", {"messages": []})
        assert child.wait(20) == 17
