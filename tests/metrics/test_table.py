"""From rows, frames and records to the same table."""

from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.rows import exchange

from setpoint.errors import RecordError
from setpoint.metrics.table import ExchangeTable
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.parquet import EXCHANGE_SCHEMA, frame_of
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore

GOLDEN = Path(__file__).parents[1] / "records" / "golden" / "v1"


@st.composite
def runs(draw: st.DrawFn) -> list[Exchange]:
    """Exchanges of any outcome, with answers of any shape."""
    rows = []
    for index in range(draw(st.integers(0, 12))):
        gaps = tuple(draw(st.lists(st.floats(0, 5), max_size=6)))
        rows.append(
            exchange(
                index,
                at=draw(st.floats(0, 100)),
                ttft_s=draw(st.floats(0, 5)),
                gaps_s=gaps,
                kinds=draw(st.text("crt", min_size=len(gaps) + 1, max_size=len(gaps) + 1)),
                outcome=draw(st.sampled_from(list(Outcome))),
                session=draw(st.integers(0, 3)),
                warmup=draw(st.booleans()),
            )
        )
    return rows


def same(a: ExchangeTable, b: ExchangeTable) -> bool:
    """Equal row by row, gap by gap."""
    columns = [n for n in ExchangeTable.__dataclass_fields__ if n not in ("gap_at", "gap_s")]
    return gap_lists(a) == gap_lists(b) and all(
        np.array_equal(getattr(a, n), getattr(b, n), equal_nan=getattr(a, n).dtype.kind == "f") for n in columns
    )


def gap_lists(table: ExchangeTable) -> list[list[float]]:
    """The gaps of each row."""
    return [table.gap_s[at : at + n].tolist() for at, n in zip(table.gap_at, table.gaps, strict=True)]


@given(runs(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_table_does_not_depend_on_the_order_of_writing(rows: list[Exchange], random: Random) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert same(ExchangeTable.from_exchanges(rows), ExchangeTable.from_exchanges(shuffled))


@given(runs())
@settings(max_examples=40, deadline=None)
def test_every_request_is_conserved(rows: list[Exchange]) -> None:
    table = ExchangeTable.from_exchanges(rows)
    assert len(table) == len(rows) == sum(table.outcomes().values())
    assert np.all(table.answered.astype(int) + table.failed + table.cancelled == 1)
    assert len(table.measured) + int(table.warmup.sum()) == len(rows)
    parts = [table.select(table.index % 2 == i) for i in (0, 1)]
    assert sorted([*parts[0].index, *parts[1].index]) == sorted(table.index)
    assert sum(int(p.gaps_at_most(1.0).sum()) for p in parts) == int(table.gaps_at_most(1.0).sum())


@given(runs())
@settings(max_examples=40, deadline=None)
def test_gaps_are_those_between_visible_chunks(rows: list[Exchange]) -> None:
    table = ExchangeTable.from_exchanges(rows)
    by_index = {row.index: row for row in rows}
    for i, index in enumerate(table.index.tolist()):
        row = by_index[index]
        visible = [t for t, k in zip(row.chunk_s, row.chunk_kinds, strict=True) if k != "r"]
        gaps = table.gap_s[table.gap_at[i] : table.gap_at[i] + table.gaps[i]]
        np.testing.assert_allclose(gaps, np.diff(visible), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("state", ["closed", "crashed"])
def test_a_record_gives_the_same_table_as_its_frame(state: str) -> None:
    record = RunRecord(GOLDEN / state)
    table = ExchangeTable.from_record(record)
    assert same(table, ExchangeTable.from_frame(record.exchanges()))
    assert len(table) == 4


def test_many_batches_give_the_same_table_as_one(tmp_path: Path) -> None:
    rows = [exchange(i, gaps_s=(0.01,) * (i % 4)) for i in range(50)]
    writer = RunStore(tmp_path).create("c")
    for row in rows:
        writer.journal(row.index % 3).append(row)
    record = writer.finish()
    frames = record.iter_frames(batch=7)
    assert same(ExchangeTable.from_frames(frames), ExchangeTable.from_exchanges(rows))


def test_an_unknown_outcome_and_a_missing_column_are_errors() -> None:
    frame = frame_of([exchange(0)], EXCHANGE_SCHEMA)
    with pytest.raises(RecordError, match="unknown outcome 'exploded'"):
        ExchangeTable.from_frame(frame.with_columns(outcome=pl.lit("exploded")))
    with pytest.raises(RecordError, match="without the columns done_s"):
        ExchangeTable.from_frame(frame.drop("done_s"))
    with pytest.raises(RecordError, match="differ in length"):
        ExchangeTable.from_frame(frame.with_columns(chunk_kinds=pl.lit("c")))


def test_counts_that_the_server_did_not_give_are_not_zero() -> None:
    table = ExchangeTable.from_exchanges([exchange(0)])
    assert np.isnan(table.cached_tokens).all()
    assert np.isnan(table.completion_tokens).all()
