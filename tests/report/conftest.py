"""Records of runs that nobody made: written through the real writer, so that reports read what is really read."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.load.conftest import make_card

from setpoint.load.certificate import Certificate
from setpoint.metrics.judge import judge_all
from setpoint.metrics.summary import summarise
from setpoint.metrics.table import ExchangeTable
from setpoint.records.exchange import Exchange
from setpoint.records.meta import ScheduleFacts, Series
from setpoint.records.record import RunRecord
from setpoint.records.signal import SignalRow, SignalState
from setpoint.records.store import RunStore
from setpoint.workload.card import Workload

from tests.records.rows import exchange  # isort: skip

Write = Callable[..., RunRecord]


def streamed(count: int, rate_per_s: float, ttft_s: float, gap_s: float = 0.01) -> list[Exchange]:
    """``count`` answers of four chunks at a constant rate, all alike."""
    rows = []
    for index in range(count):
        row = exchange(index, at=index / rate_per_s)
        times = [row.scheduled_s + ttft_s + gap_s * i for i in range(4)]
        rows.append(
            msgspec.structs.replace(
                row, chunk_s=times, first_token_s=times[0], first_visible_s=times[0], last_token_s=times[-1],
                headers_s=times[0] - 0.001, done_s=times[-1] + 0.001,
            )
        )  # fmt: skip
    return rows


@pytest.fixture
def write_run(tmp_path: Path) -> Write:
    """Writes one closed run: ``write_run(rate_per_s, ttft_s, count=200, ...)``."""
    store = RunStore(tmp_path / "runs")

    def write(
        rate_per_s: float,
        ttft_s: float,
        *,
        count: int = 200,
        card: Workload | None = None,
        rows: Sequence[Exchange] | None = None,
        series: Series | None = None,
        reason: str | None = None,
        pins: dict[str, object] | None = None,
        signals: Sequence[SignalRow] | None = None,
        users: int | None = None,
        closed: bool = True,
    ) -> RunRecord:
        card = card or make_card()
        writer = store.create(card.name)
        for row in rows if rows is not None else streamed(count, rate_per_s, ttft_s):
            writer.journal(0).append(row)
        if signals is None:
            signals = [
                SignalRow(time_s=float(t), signal=name, value=value, state=SignalState.OK, source="fake")
                for t in range(6)
                for name, value in (("requests_running", 3.0), ("requests_waiting", 1.0 * t), ("kv_usage", 0.4))
            ]
        writer.signals(list(signals))
        writer.update(
            card=card.to_dict(),
            pins={"engine": "fake", "engine_flags": {"slots": 4}, "model": "tiny", "load": f"{rate_per_s:g} sessions/s"}
            | (pins or {}),
            target={"base_url": "http://127.0.0.1:8000", "dialect": "openai-chat", "model": "tiny"},
            schedule=ScheduleFacts(
                seed=1, digest="00" * 32, offered_per_s=None if users else rate_per_s, concurrency=users,
                duration_s=count / rate_per_s, requests=count,
            ),
            series=series,
            environment={"cpu_model": "Some CPU", "os": "Linux", "kernel": "6", "python": "3.11"},
        )  # fmt: skip
        if not closed:
            return RunRecord(writer.path)
        table = ExchangeTable.from_record(RunRecord(writer.path))
        certificate = Certificate(None, 1, 0.0001, 0.0002, 0.001, 0.01, 0.002, 1.0, 0.5, ())
        writer.update(
            client=certificate.record(),
            summary=summarise(table, card.promises).to_dict(),
            verdicts=[msgspec.to_builtins(v) for v in judge_all(card.promises, table)],
        )
        return writer.finish() if reason is None else writer.abort(reason)

    return write
