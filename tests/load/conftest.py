"""Cards, targets and runs for the tests of the load generator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from setpoint.load.look import EarlyEnd
from setpoint.load.runner import Outcome, run
from setpoint.load.spec import LoadSpec
from setpoint.records.meta import ScheduleFacts
from setpoint.records.store import RunStore
from setpoint.records.target import Dialect, Target
from setpoint.workload.card import Workload
from setpoint.workload.generate import schedule_for


def make_card(**changes: Any) -> Workload:  # noqa: ANN401 - any field of traffic
    """A card of short answers; ``changes`` go into its traffic, ``promises`` replaces the promises."""
    promises = changes.pop("promises", ["p90 ttft <= 500 ms", "answered >= 90%"])
    contract = changes.pop("contract", {"unit": "answer", "api": "chat"})
    traffic: dict[str, Any] = {
        "class": "interactive",
        "arrivals": {"process": "poisson", "rate": "40/s"},
        "prompt_tokens": 24,
        "output_tokens": 6,
        "duration": "2s",
        "warmup_requests": 3,
    }
    traffic |= changes
    return Workload.model_validate(
        {
            "apiVersion": "setpoint/v1",
            "kind": "Workload",
            "name": "test",
            "contract": contract,
            "traffic": traffic,
            "promises": promises,
        }
    )


Make = Callable[..., Outcome]


def planned(outcome: Outcome) -> ScheduleFacts:
    """The schedule that a run was made of."""
    schedule = outcome.record.meta.schedule
    assert schedule is not None
    return schedule


def numbers(rows: pl.DataFrame, column: str) -> npt.NDArray[np.float64]:
    """A column as numbers."""
    return rows[column].cast(pl.Float64).to_numpy()


@pytest.fixture
def make_run(tmp_path: Path) -> Make:
    """Runs a card against a URL: ``make_run(card, url, **LoadSpec fields)``."""

    def make(
        card: Workload,
        url: str,
        *,
        dialect: Dialect = Dialect.CHAT,
        rate_per_s: float | None = None,
        concurrency: int | None = None,
        duration_s: float | None = None,
        look: EarlyEnd | None = None,
        **spec: Any,  # noqa: ANN401 - fields of LoadSpec
    ) -> Outcome:
        schedule = schedule_for(card, 1, rate_per_s=rate_per_s, concurrency=concurrency, duration_s=duration_s)
        target = Target(url, dialect, "fake")
        sampler = spec.pop("sampler", None)
        listen = spec.pop("listen", lambda _: None)
        wanted = LoadSpec(card=card, schedule=schedule, target=target, label="test", look=look, **spec)
        return run(wanted, RunStore(tmp_path / "runs").create(card.name), listen=listen, sampler=sampler)

    return make
