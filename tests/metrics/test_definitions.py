"""The definitions, and the faults that users report of other tools."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.metrics.rows import exchange

from setpoint.errors import RecordError
from setpoint.metrics.definitions import METRICS, metric
from setpoint.metrics.table import ExchangeTable
from setpoint.records.exchange import Exchange, Outcome

DOCS = Path(__file__).parents[2] / "docs" / "definitions.md"


def values(name: str, *rows: Exchange) -> list[float]:
    found, _ = metric(name).observed(ExchangeTable.from_exchanges(rows))
    return [float(v) for v in found]


def test_every_metric_is_named_in_the_docs_with_its_boundary() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for definition in METRICS.values():
        assert f"`{definition.name}`" in page
        assert definition.boundary in page
        assert definition.definition.endswith(".")


def test_ttft_counts_from_the_planned_send_and_so_includes_the_clients_lag() -> None:
    row = exchange(0, at=5.0, ttft_s=0.5, lag_s=0.2)
    assert values("ttft", row) == [pytest.approx(0.5)]
    assert values("ttft_from_sent", row) == [pytest.approx(0.3)]
    assert values("client_lag", row) == [pytest.approx(0.2)]


def test_ttft_of_a_reasoning_model_ends_at_the_first_thing_seen() -> None:
    row = exchange(0, ttft_s=0.5, gaps_s=(1.0, 1.0, 0.01), kinds="rrcc")
    assert values("ttft", row) == [pytest.approx(2.5)]
    assert values("ttft_any_token", row) == [pytest.approx(0.5)]


def test_a_tool_call_is_visible() -> None:
    assert values("ttft", exchange(0, ttft_s=0.5, gaps_s=(1.0,), kinds="rt")) == [pytest.approx(1.5)]


def test_a_stall_is_visible_in_itl_and_not_averaged_away() -> None:
    row = exchange(0, gaps_s=(0.01,) * 50 + (3.0,) + (0.01,) * 50)
    assert max(values("itl", row)) == pytest.approx(3.0, rel=1e-6)
    assert len(values("itl", row)) == 101
    assert values("stall", row) == [pytest.approx(3.0, rel=1e-6)]
    assert values("tpot", row) == [pytest.approx(4.0 / 101, rel=1e-6)]


def test_a_chunk_with_several_tokens_ends_one_gap() -> None:
    row = exchange(0, gaps_s=(0.3, 0.3), tokens=(1, 4, 4), completion_tokens=9)
    assert values("itl", row) == [pytest.approx(0.3, rel=1e-6)] * 2
    assert values("tpot", row) == [pytest.approx(0.6 / 8)]
    assert values("user_speed", row) == [pytest.approx(8 / 0.6)]


def test_hidden_reasoning_between_visible_chunks_ends_no_gap() -> None:
    row = exchange(0, gaps_s=(0.1, 0.2, 0.3, 0.4), kinds="crrct")
    assert values("itl", row) == [pytest.approx(0.6, rel=1e-6), pytest.approx(0.4, rel=1e-6)]


def test_an_answer_in_one_chunk_has_no_pace_and_no_gap() -> None:
    row = exchange(0, gaps_s=(), tokens=(40,), completion_tokens=40)
    assert values("tpot", row) == values("itl", row) == values("stall", row) == values("user_speed", row) == []
    assert values("ttft", row) == [pytest.approx(0.1)]


def test_the_servers_token_count_is_preferred_and_else_chunks_are_counted() -> None:
    table = ExchangeTable.from_exchanges([exchange(0, completion_tokens=9), exchange(1, tokens=(1, 2, 3, 4))])
    assert table.output_tokens.tolist() == [9, 10]
    assert table.counted_by_server.tolist() == [True, False]


@pytest.mark.parametrize("name", [n for n, m in METRICS.items() if m.answered_only])
@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.answered])
def test_failures_are_in_no_distribution(name: str, outcome: Outcome) -> None:
    rows = [exchange(0), exchange(1, outcome=outcome, ttft_s=60.0), exchange(2)]
    assert values(name, *rows) == values(name, rows[0], rows[2])


def test_e2e_ends_when_the_exchange_does() -> None:
    assert values("e2e", exchange(0, ttft_s=0.5, gaps_s=(0.5,), done_after_s=0.25)) == [pytest.approx(1.25)]


@pytest.mark.parametrize(
    "change",
    [
        {"done_s": -1.0},
        {"first_token_s": -1.7e9},
        {"first_visible_s": 0.0},
        {"sent_s": -1.0},
        {"chunk_s": [0.1, 0.3, 0.2, 0.4]},
    ],
)
def test_a_time_that_runs_backwards_is_an_error_and_never_a_negative_latency(change: dict[str, object]) -> None:
    broken = msgspec.structs.replace(exchange(7, at=0.0), **change)
    with pytest.raises(RecordError, match="exchange 7"):
        ExchangeTable.from_exchanges([exchange(3), broken])


def test_longest_gaps_are_right_among_exchanges_without_any() -> None:
    rows = [
        exchange(0, gaps_s=()),
        exchange(1, gaps_s=(0.1, 0.5, 0.2)),
        exchange(2, outcome=Outcome.ERROR),
        exchange(3, gaps_s=(0.3,)),
        exchange(4, gaps_s=()),
    ]
    table = ExchangeTable.from_exchanges(rows[::-1])
    np.testing.assert_allclose(table.longest_gap(), [np.nan, 0.5, np.nan, 0.3, np.nan], rtol=1e-6)
    assert table.gaps_at_most(0.25).tolist() == [0, 2, 0, 0, 0]
    assert table.select(np.array([False, False, False, True, True])).gaps_at_most(0.35).tolist() == [1, 0]
