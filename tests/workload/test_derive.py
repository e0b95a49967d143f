"""A derived card has the rate, bursts, lengths, prefixes and turns of its trace, and none of its words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.workload.cards import shared_traces

from setpoint.errors import UsageError
from setpoint.workload.card import Gamma, Poisson
from setpoint.workload.derive import QUANTILES, Derived, card_from_trace
from setpoint.workload.generate import schedule_for
from setpoint.workload.reading import parse_card
from setpoint.workload.traces import read_trace

OWN = Path(__file__).parent / "traces"
SHARED = shared_traces()
MINE = [OWN / name for name in ("azure.csv", "mooncake.jsonl", "agent", "agent/session_0.json", "access.jsonl")]
RECORDED = sorted([*SHARED.glob("*"), *(SHARED / "coding_agent").glob("*")])


def marked(paths: list[Path]) -> list[Any]:
    """As parameters, those of the recorded data marked."""
    return [pytest.param(p, marks=pytest.mark.shared) if p in RECORDED else p for p in paths]


TRACES = marked([*MINE, *RECORDED])
TABLES = [p for p in [*MINE, *RECORDED] if p.suffix in (".csv", ".jsonl")]
COMMON_CLOCK = marked(TABLES)


def name_of(path: object) -> str:
    return path.name if isinstance(path, Path) else str(path)


def write(tmp_path: Path, entries: list[dict[str, Any]]) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(e) + "\n" for e in entries), encoding="utf-8")
    return path


def request(time: float, prompt: int = 100, output: int = 10, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"time": time, "prompt_tokens": prompt, "completion_tokens": output, **more}


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_a_derived_card_is_a_good_card(path: Path) -> None:
    derived = card_from_trace(path)
    assert parse_card(derived.card.to_yaml().encode(), "derived") == derived.card
    assert derived.card.promises == ()
    assert "what was promised: add promises" in derived.unknown
    schedule = schedule_for(derived.card, 1, max_requests=500)
    assert schedule.requests > 5
    assert derived.card.traffic.duration % 60 == 0


@pytest.mark.parametrize("path", COMMON_CLOCK, ids=name_of)
def test_a_schedule_of_a_derived_card_has_the_rate_of_the_trace(path: Path) -> None:
    derived = card_from_trace(path)
    arrivals = derived.card.traffic.arrivals
    assert isinstance(arrivals, Poisson | Gamma)
    burstiness = arrivals.burstiness if isinstance(arrivals, Gamma) else 1.0
    window_s = min(2000 * max(burstiness, 1) / arrivals.rate, 200_000 / arrivals.rate)
    sessions = len(schedule_for(derived.card, 1, duration_s=window_s).sessions)
    expected = arrivals.rate * window_s
    assert sessions == pytest.approx(expected, abs=4 * np.sqrt(burstiness * expected))
    if "turns a session" not in dict(derived.facts):
        assert arrivals.rate == pytest.approx(read_trace(path).recorded().rate_per_s)


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_drawn_answers_have_the_quantiles_of_the_trace(path: Path) -> None:
    lengths = card_from_trace(path).card.traffic.output_tokens
    seen = np.array([max(r.output_tokens, 1) for r in read_trace(path).requests if r.answered])
    shares = np.array(list(QUANTILES.values()))
    assert lengths.quantile(shares) == pytest.approx(np.quantile(seen, shares, method="inverted_cdf"))
    if len(seen) > 1000:
        drawn = lengths.draw(np.random.Generator(np.random.PCG64(1)).random(100_000))
        for share in (0.25, 0.5, 0.75, 0.9, 0.99):
            named = np.quantile(seen, share, method="inverted_cdf")
            assert np.mean(drawn <= named) >= share - 0.01
            assert np.mean(drawn < named) <= share + 0.01


@pytest.mark.parametrize("path", marked([p for p in TABLES if "mooncake" not in p.name]), ids=name_of)
def test_prompt_quantiles_are_those_of_the_openings(path: Path) -> None:
    seen: dict[str, int] = {}
    for i, r in enumerate(r for r in read_trace(path).requests if r.answered):
        seen.setdefault(r.session or str(i), r.prompt_tokens)
    shares = np.array(list(QUANTILES.values()))
    lengths = card_from_trace(path).card.traffic.prompt_tokens
    assert lengths.quantile(shares) == pytest.approx(np.quantile(list(seen.values()), shares, method="inverted_cdf"))


def everything(derived: Derived) -> str:
    facts = json.dumps([derived.card.to_dict(), derived.facts, derived.unknown])
    return facts + derived.card.to_yaml() + repr(derived)


def test_no_word_of_a_trace_is_kept() -> None:
    derived = card_from_trace(OWN / "access.jsonl")
    assert "SECRET" in (OWN / "access.jsonl").read_text(encoding="utf-8")
    assert "SECRET" not in everything(derived)
    assert "line 18: not JSON" in dict(derived.facts)["lines not read"]
    assert "SECRET" not in repr(read_trace(OWN / "access.jsonl").bad_examples)


def test_an_access_log_gives_sessions_waits_and_prefixes() -> None:
    derived = card_from_trace(OWN / "access.jsonl")
    traffic, facts = derived.card.traffic, dict(derived.facts)
    assert isinstance(traffic.arrivals, Poisson)
    assert traffic.arrivals.rate == pytest.approx(1 / 60)  # the refused request is an arrival too
    assert facts["not answered"].startswith("1, counted as arrivals")
    assert any("13 are too few to tell" in u for u in derived.unknown)
    assert traffic.conversation is not None
    assert traffic.conversation.turns.top == 2
    assert traffic.conversation.think_time.quantile(np.array([0.5])) == pytest.approx([10.0])
    assert traffic.conversation.follow_up_tokens is not None
    assert traffic.conversation.follow_up_tokens.top == 100 - 40
    assert traffic.prefix is not None
    assert (traffic.prefix.tokens, traffic.prefix.groups) == (128, 1)
    assert traffic.prefix.share == pytest.approx(12 / 12)


def test_block_hashes_tie_a_continuation_to_its_beginning() -> None:
    derived = card_from_trace(OWN / "mooncake.jsonl")
    traffic = derived.card.traffic
    assert dict(derived.facts)["turns a session"] == "median 1.5, max 2"
    assert traffic.conversation is not None
    assert traffic.conversation.think_time.quantile(np.array([0.5])) == pytest.approx([40.0])
    assert any("includes the time of the answer" in u for u in derived.unknown)
    assert traffic.prefix is not None
    assert (traffic.prefix.tokens, traffic.prefix.groups, traffic.prefix.share) == (512, 1, 1.0)


def test_sessions_that_begin_alike_are_not_one_conversation(tmp_path: Path) -> None:
    system = ["s0", "s1", "s2"]
    entries = [request(10.0 * i, 200, prefix_blocks=[*system, f"a{i}", f"b{i}"], block_tokens=40) for i in range(40)]
    derived = card_from_trace(write(tmp_path, entries))
    assert derived.card.traffic.conversation is None
    assert derived.card.traffic.prefix is not None
    assert derived.card.traffic.prefix.tokens == 120


def test_an_agent_gives_tool_turns_times_and_results() -> None:
    traffic = card_from_trace(OWN / "agent").card.traffic
    assert traffic.agent is not None
    assert (traffic.agent.tool_turns.quantile(np.array([0.0]))[0], traffic.agent.tool_turns.top) == (2, 3)
    assert traffic.agent.result_tokens.top == 600
    assert traffic.agent.tool_time.top == 7
    assert traffic.prefix is not None
    assert traffic.prefix.tokens == 2000


def test_tasks_without_tools_count_as_tasks(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    for n, turns in enumerate([1, 1, 4]):
        entries = [
            {"t": 5.0 * k, "in": 500 + 100 * k, "out": 10, "input_types": ["tool_result"] if k else ["text"]}
            for k in range(turns)
        ]
        (folder / f"{n}.json").write_text(json.dumps({"id": "same", "requests": entries}), encoding="utf-8")
    agent = card_from_trace(folder).card.traffic.agent
    assert agent is not None
    assert agent.tool_turns.draw(np.array([0.0, 0.5, 1.0])).tolist() == [0, 0, 3]


def test_one_length_of_prefix_stands_for_most_shared_tokens(tmp_path: Path) -> None:
    def opening(i: int, tokens: int, *blocks: str) -> dict[str, Any]:
        return request(10.0 * i, tokens, prefix_blocks=[*blocks, f"own{i}"], block_tokens=64)

    long = [opening(i, 400, "a", "b", "c") for i in range(30)]
    short = [opening(30 + i, 13, "z") for i in range(2)]
    derived = card_from_trace(write(tmp_path, long + short))
    prefix = derived.card.traffic.prefix
    assert prefix is not None
    assert (prefix.tokens, prefix.groups, prefix.share) == (192, 1, 30 / 32)
    assert any("1 more groups share fewer tokens" in u for u in derived.unknown)


def test_a_prefix_is_shorter_than_the_prompts_that_share_it(tmp_path: Path) -> None:
    entries = [request(10.0 * i, 1 if i % 2 else 40, prefix_blocks=["a"], block_tokens=64) for i in range(4)]
    assert card_from_trace(write(tmp_path, entries)).card.traffic.prefix is None
    entries = [request(10.0 * i, 40, prefix_blocks=["a"], block_tokens=64) for i in range(4)]
    prefix = card_from_trace(write(tmp_path, entries)).card.traffic.prefix
    assert prefix is not None
    assert prefix.tokens == 39


@pytest.mark.parametrize(
    ("gaps", "process"),
    [
        (np.full(200, 0.5), "constant"),
        (np.random.Generator(np.random.PCG64(1)).exponential(0.5, 4000), "poisson"),
        (np.random.Generator(np.random.PCG64(1)).gamma(0.2, 2.5, 4000), "gamma"),
        (np.random.Generator(np.random.PCG64(1)).gamma(4, 0.125, 4000), "gamma"),
    ],
)
def test_the_process_is_named_by_the_gaps(tmp_path: Path, gaps: np.ndarray, process: str) -> None:
    times = np.cumsum(gaps)
    arrivals = card_from_trace(write(tmp_path, [request(float(t)) for t in times])).card.traffic.arrivals
    assert arrivals.process == process
    assert arrivals.rate == pytest.approx((len(times) - 1) / (times[-1] - times[0]))  # type: ignore[union-attr]
    if isinstance(arrivals, Gamma):
        assert arrivals.burstiness == pytest.approx(np.diff(times).var() / np.diff(times).mean() ** 2, rel=1e-3)


@pytest.mark.shared
def test_a_derived_run_is_long_enough_to_show_its_bursts() -> None:
    derived = card_from_trace(SHARED / "azure_2023_code.csv")
    assert derived.card.traffic.duration == 58 * 60  # the whole trace: burstiness is 173
    assert card_from_trace(SHARED / "azure_2023_conv.csv").card.traffic.duration == 60


def test_one_time_for_all_is_no_rate(tmp_path: Path) -> None:
    derived = card_from_trace(write(tmp_path, [request(5.0)] * 50))
    assert derived.card.traffic.arrivals.process == "closed"
    assert "how sessions arrive: all carry one time" in derived.unknown


def test_a_trace_without_an_answer_has_no_card(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no answered request"):
        card_from_trace(write(tmp_path, [{"time": 1, "status": 500}]))


def test_what_no_card_can_hold_is_told_and_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"think_time.*from 0 to 604,800"):
        card_from_trace(write(tmp_path, [request(t, session="one") for t in (0, 1e7)]))


@pytest.mark.parametrize(("name", "slug"), [("My Trace (1)", "my-trace-1"), ("---", "trace"), ("x" * 90, "x" * 64)])
def test_a_card_is_named_after_its_file(tmp_path: Path, name: str, slug: str) -> None:
    path = tmp_path / f"{name}.jsonl"
    path.write_text(json.dumps(request(1)) + "\n", encoding="utf-8")
    assert card_from_trace(path).card.name == slug
