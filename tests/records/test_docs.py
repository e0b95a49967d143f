"""The page about records says what the files hold, and its queries run."""

import re
from pathlib import Path

import polars as pl
import pytest
from tests.records.rows import exchange

from setpoint.records.parquet import DISTRIBUTION_SCHEMA, EXCHANGE_SCHEMA, QUALITY_SCHEMA, SIGNAL_SCHEMA
from setpoint.records.store import RunStore

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")


def columns_of(heading: str) -> list[str]:
    section = PAGE.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_every_column_is_documented_in_order() -> None:
    assert columns_of("Columns of exchanges.parquet") == list(EXCHANGE_SCHEMA)
    assert columns_of("Columns of signals.parquet") == list(SIGNAL_SCHEMA)
    assert columns_of("Columns of quality.parquet") == list(QUALITY_SCHEMA)
    assert columns_of("Columns of distributions.parquet") == list(DISTRIBUTION_SCHEMA)


def test_the_polars_queries_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        writer = RunStore(Path(".setpoint/runs")).create("chat")
        for i in range(4):
            writer.journal(0).append(exchange(i))
        writer.finish()
    queries = re.findall(r"<!-- tested -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(queries) == 2
    names: dict[str, object] = {}
    for query in queries:
        exec(query, names)
    slow, gaps = names["slow"], names["gaps"]
    assert isinstance(slow, pl.DataFrame)
    assert isinstance(gaps, pl.DataFrame)
    assert slow["ttft_p95_s"].to_list() == pytest.approx([0.1, 0.1])
    assert slow["exchanges"].to_list() == [4, 4]
    assert gaps["gap_s"].to_list() == pytest.approx([0.01] * 24)
