"""Traces are read for their lengths and times; a line that is no request is counted, never guessed."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workload.cards import card, shared_traces
from tests.workload.test_prompts import common

from setpoint.errors import UsageError
from setpoint.workload.generate import schedule_for
from setpoint.workload.prompts import PromptWriter, Vocabulary
from setpoint.workload.traces import Trace, read_trace

OWN = Path(__file__).parent / "traces"
SHARED = shared_traces()


def lines(tmp_path: Path, *entries: object, name: str = "trace.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in entries), encoding="utf-8")
    return path


def azure(tmp_path: Path, *rows: str) -> Path:
    return lines(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens", *rows, name="trace.csv")


@pytest.mark.parametrize(
    ("path", "kind", "requests"),
    [
        (OWN / "azure.csv", "azure", 60),
        (OWN / "mooncake.jsonl", "mooncake", 30),
        (OWN / "agent", "coding-agent", 7),
        (OWN / "agent" / "session_0.json", "coding-agent", 3),
        (OWN / "access.jsonl", "access-log", 17),
        pytest.param(SHARED / "azure_2023_code.csv", "azure", 8819, marks=pytest.mark.shared),
        pytest.param(SHARED / "azure_2023_conv.csv", "azure", 19366, marks=pytest.mark.shared),
        pytest.param(SHARED / "mooncake_conversation.jsonl", "mooncake", 12031, marks=pytest.mark.shared),
        pytest.param(SHARED / "mooncake_synthetic.jsonl", "mooncake", 3993, marks=pytest.mark.shared),
        pytest.param(SHARED / "coding_agent", "coding-agent", 178, marks=pytest.mark.shared),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else str(value),
)
def test_a_format_is_known_by_its_content(path: Path, kind: str, requests: int) -> None:
    trace = read_trace(path)
    assert (trace.format, len(trace.requests)) == (kind, requests)
    assert trace.bad_lines == (2 if path.name == "access.jsonl" else 0)
    if trace.common_clock:
        assert trace.requests == sorted(trace.requests, key=lambda r: r.time_s)


def test_units_of_each_format(tmp_path: Path) -> None:
    first, second = read_trace(
        azure(tmp_path, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50,1,2")
    ).requests
    assert (first.prompt_tokens, first.output_tokens) == (374, 44)
    assert second.time_s - first.time_s == pytest.approx(3.31941)
    mooncake = lines(tmp_path, {"timestamp": 1500, "input_length": 9, "output_length": 3, "hash_ids": [4, 5]})
    assert read_trace(mooncake).requests[0].time_s == 1.5
    assert read_trace(mooncake).block_tokens == 512
    log = {"ts": 10, "input_tokens": 5, "output_tokens": 6, "latency_ms": 250, "conversation_id": 3}
    request = read_trace(lines(tmp_path, log)).requests[0]
    assert (request.time_s, request.latency_s, request.session) == (10, 0.25, "3")


def test_times_without_a_zone_are_utc_whatever_the_zone_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = azure(tmp_path, "2023-03-12 01:59:00,1,1", "2023-03-12 03:01:00,1,1")  # the clock jumps in New York
    try:
        monkeypatch.setenv("TZ", "America/New_York")
        time.tzset()
        a, b = read_trace(path).requests
    finally:
        monkeypatch.undo()
        time.tzset()
    assert b.time_s - a.time_s == 62 * 60
    assert os.environ.get("TZ") != "America/New_York"


MOONCAKE = {"timestamp": 0, "input_length": 9, "output_length": 3}
LOGGED = {"time": 0, "prompt_tokens": 9, "completion_tokens": 3}


@pytest.mark.parametrize(
    ("good", "change", "reason"),
    [
        (MOONCAKE, {"timestamp": float("nan")}, "timestamp is no number"),
        (MOONCAKE, {"timestamp": float("inf")}, "timestamp is no number"),
        (MOONCAKE, {"timestamp": 10**400}, "timestamp is no number"),
        (MOONCAKE, {"timestamp": "soon"}, "timestamp is no number"),
        (MOONCAKE, {"timestamp": True}, "timestamp is no number"),
        (MOONCAKE, {"timestamp": None}, "timestamp is no number"),
        (MOONCAKE, {"input_length": float("inf")}, "input_length is n"),
        (MOONCAKE, {"input_length": float("nan")}, "input_length is no whole number"),
        (MOONCAKE, {"input_length": 1.5}, "input_length is no whole number"),
        (MOONCAKE, {"input_length": True}, "input_length is no whole number"),
        (MOONCAKE, {"input_length": [1]}, "input_length is no whole number"),
        (MOONCAKE, {"input_length": -1}, "input_length is not between"),
        (MOONCAKE, {"input_length": 10**30}, "input_length is not between"),
        (MOONCAKE, {"input_length": 0}, "an empty prompt"),
        (MOONCAKE, {"output_length": -1}, "output_length is not between"),
        (MOONCAKE, {"hash_ids": "abc"}, "hash_ids is no list of hashes"),
        (MOONCAKE, {"hash_ids": [{}]}, "hash_ids is no list of hashes"),
        (LOGGED, {"time": None}, "no time"),
        (LOGGED, {"time": "yesterday"}, "no ISO 8601 time"),
        (LOGGED, {"time": 1760000000000}, "time is no number of seconds; milliseconds?"),
        (LOGGED, {"prompt_tokens": None}, "no prompt_tokens or completion_tokens"),
        (LOGGED, {"latency_s": -1}, "a negative time"),
        (LOGGED, {"latency_s": float("nan")}, "latency is no number"),
        (LOGGED, {"latency_ms": "fast"}, "latency_ms is no number"),
        (LOGGED, {"status": "up"}, "status is no whole number"),
        (LOGGED, {"prefix_blocks": ["a"]}, "no block_tokens"),
        (LOGGED, {"prefix_blocks": ["a"], "block_tokens": 0}, "block_tokens is not the same number above 0"),
    ],
)
def test_a_bad_line_is_counted_with_its_number_and_reason(
    tmp_path: Path, good: dict[str, object], change: dict[str, object], reason: str
) -> None:
    trace = read_trace(lines(tmp_path, good, {**good, **change}, "", good))
    assert (len(trace.requests), trace.bad_lines) == (2, 1)
    assert trace.bad_examples[0].startswith(f"line 2: {reason}")


@pytest.mark.parametrize(
    "row", ["soon,1,1", "2023-11-16 18:15:46,x,1", "2023-11-16 18:15:46,1", "2023-11-16 18:15:46,0,1"]
)
def test_a_bad_row_of_a_table_is_counted(tmp_path: Path, row: str) -> None:
    trace = read_trace(azure(tmp_path, "2023-11-16 18:15:46,1,1", row))
    assert (len(trace.requests), trace.bad_lines) == (1, 1)
    assert trace.bad_examples[0].startswith("line 3: ")


@pytest.mark.parametrize("line", ["{", "[1]", "5", "null", "[" * 100_000, '"words"'])
def test_a_line_that_is_no_object_is_counted(tmp_path: Path, line: str) -> None:
    trace = read_trace(lines(tmp_path, LOGGED, line))
    assert (len(trace.requests), trace.bad_lines) == (1, 1)


def test_blocks_of_two_sizes_in_one_log_are_not_mixed(tmp_path: Path) -> None:
    entry = {**LOGGED, "prefix_blocks": ["a"], "block_tokens": 16}
    trace = read_trace(lines(tmp_path, entry, {**entry, "block_tokens": 64}))
    assert (trace.block_tokens, trace.bad_lines) == (16, 1)


def test_lines_named_json_are_read_as_lines(tmp_path: Path) -> None:
    assert read_trace(lines(tmp_path, LOGGED, LOGGED, name="log.json")).format == "access-log"


def test_an_unanswered_request_needs_no_lengths(tmp_path: Path) -> None:
    request = read_trace(lines(tmp_path, {"time": 1, "status": 429})).requests[0]
    assert (request.answered, request.prompt_tokens) == (False, 0)


@pytest.mark.parametrize("status", [429, 503, 408, 499, 500, 502, 504])
def test_what_a_limit_or_a_failure_kept_from_its_answer_is_demand(tmp_path: Path, status: int) -> None:
    ours = {"time": 1, "status": status, "outcome": "rejected", "model": "m", "prompt_tokens": 0}
    trace = read_trace(lines(tmp_path, {"time": 1, "status": status}, ours))
    assert (len(trace.requests), trace.no_demand) == (2, 0)


@pytest.mark.parametrize(
    "line",
    [
        {"status": 401},
        {"status": 404},
        {"status": 400, "model": "m"},
        {"status": 304, "model": "m"},
        {"status": 503, "outcome": "rejected", "reason": "tenants"},  # the gateway's own line of no model
        {"status": 499, "outcome": "cancelled"},
    ],
)
def test_what_no_model_could_have_answered_is_no_demand(tmp_path: Path, line: dict[str, object]) -> None:
    trace = read_trace(lines(tmp_path, LOGGED, {"time": 1, **line}))
    assert (len(trace.requests), trace.no_demand, trace.bad_lines) == (1, 1, 0)


def unreadable(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    yield tmp_path / "missing.csv", "no such file or directory"
    for name, content, reason in [
        ("empty.jsonl", b"", "holds no request"),
        ("words.txt", b"hello\nworld\n", "holds no request (line 1: not JSON; line 2: not JSON)"),
        ("header.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no request"),
        ("image.jsonl", b"\xff\xfe\x00", "is not text"),
        ("other.json", b'{"requests": 5}', "JSON of no known format"),
        ("list.json", b"[1, 2]", "JSON of no known format"),
        ("deep.json", b"[" * 100_000, "JSON of no known format"),
        ("wide.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"9" * 200_000, "no CSV from line"),
    ]:
        (tmp_path / name).write_bytes(content)
        yield tmp_path / name, reason
    (tmp_path / "nothing").mkdir()
    yield tmp_path / "nothing", "holds no request"
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.json").write_text(json.dumps(LOGGED) + "\n", encoding="utf-8")
    yield tmp_path / "mixed", "not a coding-agent session"


def test_what_is_no_trace_is_told_in_one_sentence(tmp_path: Path) -> None:
    for path, reason in unreadable(tmp_path):
        with pytest.raises(UsageError) as caught:
            read_trace(path)
        assert reason in caught.value.message
        assert path.name in caught.value.message


def replay(path: Path, **options: float) -> tuple[Trace, object]:
    read = card(arrivals=f"{{process: replay, trace: {path.name}}}")
    return read_trace(path), schedule_for(read, 1, folder=str(path.parent), **options)  # type: ignore[arg-type]


def test_a_replay_sends_what_was_recorded(tmp_path: Path) -> None:
    path = lines(tmp_path, *({**LOGGED, "time": 100 + t, "prompt_tokens": 5 + t} for t in (4, 0, 1, 2)))
    read = card(arrivals="{process: replay, trace: trace.jsonl, speed: 2}")
    schedule = schedule_for(read, 1, folder=str(tmp_path))
    assert [(s.start_s, s.turns[0].prompt_tokens) for s in schedule.sessions] == [(0, 5), (0.5, 6), (1, 7), (2, 9)]
    assert schedule.offered_per_s == pytest.approx(1.5)
    faster = schedule_for(read, 1, rate_per_s=3, folder=str(tmp_path))
    assert [s.start_s for s in faster.sessions] == [0, 0.25, 0.5, 1]
    assert faster.offered_per_s == pytest.approx(3)
    assert path.name == "trace.jsonl"


def test_a_replay_offers_the_rate_of_the_part_that_is_sent(tmp_path: Path) -> None:
    lines(tmp_path, *({**LOGGED, "time": t} for t in [0, 1, 2, 3, 4, 100, 200]))
    schedule = schedule_for(
        card(arrivals="{process: replay, trace: trace.jsonl}"), 1, duration_s=10, folder=str(tmp_path)
    )
    assert (len(schedule.sessions), schedule.offered_per_s) == (5, 1.0)


def test_a_replay_leaves_out_what_was_not_answered(tmp_path: Path) -> None:
    lines(tmp_path, {**LOGGED, "status": 500}, {**LOGGED, "time": 5})
    schedule = schedule_for(card(arrivals="{process: replay, trace: trace.jsonl}"), 1, folder=str(tmp_path))
    assert [s.start_s for s in schedule.sessions] == [0]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([LOGGED, LOGGED], "has no rate: all its requests carry one time"),
        ([{"time": 1, "status": 500}], "holds no answered request"),
    ],
)
def test_a_trace_that_cannot_be_replayed(tmp_path: Path, entries: list[object], reason: str) -> None:
    lines(tmp_path, *entries)
    with pytest.raises(UsageError, match=reason):
        schedule_for(card(arrivals="{process: replay, trace: trace.jsonl}"), 1, rate_per_s=2, folder=str(tmp_path))


def test_sessions_with_clocks_of_their_own_are_not_replayed_as_one() -> None:
    with pytest.raises(UsageError, match="clocks of their own"):
        read_trace(OWN / "agent").recorded()
    assert len(read_trace(OWN / "agent" / "session_1.json").recorded().arrivals) == 4


@pytest.mark.shared
def test_a_replay_shares_what_the_trace_shared_and_no_more() -> None:
    read = card(arrivals="{process: replay, trace: mooncake_conversation.jsonl}")
    schedule = schedule_for(read, 1, duration_s=3600, max_requests=2000, folder=str(SHARED))
    requests = read_trace(SHARED / "mooncake_conversation.jsonl").requests
    writer = PromptWriter(Vocabulary(), 1, "n")
    chosen = [i for i in range(2000) if requests[i].prompt_tokens < 6000][:60]
    texts = {i: writer.text(schedule.sessions[i], 0) for i in chosen}
    deep = 0
    for i in chosen:
        assert len(texts[i].split()) == requests[i].prompt_tokens
        for j in chosen:
            if i >= j:
                continue
            shared = sum(1 for _ in _equal_heads(requests[i].blocks, requests[j].blocks)) * 512
            shortest = min(requests[i].prompt_tokens, requests[j].prompt_tokens)
            assert min(shared, shortest - 1) <= common(texts[i], texts[j]) < shared + 8
            deep += shared > 512
    assert deep > 0


def _equal_heads(a: tuple[object, ...], b: tuple[object, ...]) -> Iterator[object]:
    for x, y in zip(a, b, strict=False):
        if x != y:
            return
        yield x
