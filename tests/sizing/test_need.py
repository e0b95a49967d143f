"""What a card asks of a placement."""

from pathlib import Path

import pytest

from setpoint.sizing.need import need_of
from setpoint.workload.promise import Metric
from setpoint.workload.reading import load_card, parse_card
from setpoint.workload.templates import template

TRACES = Path(__file__).parents[1] / "workload" / "traces"


def text(arrivals: str, more: str = "", promises: str = "[p95 ttft <= 1 s, answered >= 99%]") -> bytes:
    return (
        "apiVersion: setpoint/v1\nkind: Workload\nname: test\ntraffic:\n"
        f"  arrivals: {arrivals}\n  prompt_tokens: 100\n  output_tokens: 20\n{more}promises: {promises}\n"
    ).encode()


def test_one_turn_is_its_lengths_and_rate() -> None:
    need = need_of(parse_card(text("{process: poisson, rate: 0.01/s}"), "card.yaml"))
    assert (need.input_tokens, need.history_tokens, need.output_tokens) == (100, 0, 20)
    assert (need.typical_tokens, need.longest_tokens, need.turns) == (120, 120, 1)
    assert need.requests_per_s == pytest.approx(0.01)
    assert [limit.metric for limit in need.limits] == [Metric.TTFT]
    assert (need.limits[0].prompt_ratio, need.limits[0].output_ratio) == (1, 1)
    assert need.unchecked == ("answered ≥ 99.0%",)


def test_later_turns_carry_what_was_said() -> None:
    more = "  prefix: {tokens: 40}\n  conversation: {turns: 3, follow_up_tokens: 10}\n"
    need = need_of(parse_card(text("{process: constant, rate: 1/s}", more), "card.yaml"))
    # prompts 100, 130, 160; seen before 40, 120, 150
    assert need.input_tokens == pytest.approx(130)
    assert need.history_tokens == pytest.approx(310 / 3)
    assert need.longest_tokens == 180
    assert need.requests_per_s == pytest.approx(3)
    assert need.requests_per_unit == 1


def test_an_agent_counts_whole_sessions() -> None:
    need = need_of(parse_card(template("coding-agent").encode(), "card.yaml"))
    assert need.users == 8
    assert need.requests_per_s is None
    assert need.pause_s > 0
    assert need.requests_per_unit == need.turns > 5


def test_a_ramp_has_a_peak() -> None:
    need = need_of(parse_card(text("{process: ramp, start: 1/s, end: 3/s}"), "card.yaml"))
    assert need.requests_per_s == pytest.approx(2)
    assert need.peak_per_s == pytest.approx(3)


def test_a_replay_has_the_trace_s_lengths(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_bytes(text("{process: replay, trace: azure.csv}"))
    (tmp_path / "azure.csv").write_bytes((TRACES / "azure.csv").read_bytes())
    need = need_of(load_card(tmp_path / "card.yaml"), str(tmp_path))
    assert need.requests_per_s is not None
    assert need.requests_per_s > 0
    assert need.longest_tokens > 0
