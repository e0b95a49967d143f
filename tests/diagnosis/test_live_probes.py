"""Probes on live engines: what they cost, what stops them, and the restart before ``repeat``."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.embedded import embedded_model

from setpoint.assess.bench import Bench
from setpoint.assess.probe import conditions_of, diagnose_target, run_probe
from setpoint.assess.target import OpenTarget, TargetOptions, open_target
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probe import Conditions
from setpoint.diagnosis.probes import PROBES
from setpoint.engines.host import THREAD
from setpoint.errors import UsageError
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.workload.card import Workload

BODY: dict[str, Any] = {
    "apiVersion": "setpoint/v1", "kind": "Workload", "name": "probed",
    "traffic": {
        "class": "interactive", "arrivals": {"process": "poisson", "rate": "4/s"},
        "prompt_tokens": {"min": 40, "max": 80}, "output_tokens": 8, "duration": "3s", "warmup_requests": 1,
    },
    "promises": ["p90 ttft <= 50 ms"],
}  # fmt: skip
CARD = Workload.model_validate(BODY)
STEP = Series(id="probes", kind="diagnose", step=1)
QUICK = Conditions(wait_s=0.6, step_s=0.01, rate_per_s=4.0, users=None, streams=2)
OF_EVERY_RUN = {
    "host_cpu", "host_memory", "network_sent", "network_received", "engine_cpu_time", "engine_cpu_wait",
    "engine_memory", "engine_faults", "engine_busiest_thread",
}  # fmt: skip


@pytest.fixture(scope="module")
def cold() -> Iterator[OpenTarget]:
    """A fake engine whose first four requests after any start are slow."""
    flags = {"slots": "8", "cold_requests": "4", "cold_s": "0.3", "prefill_token_s": "0.002"}
    with open_target(CARD, TargetOptions(engine="fake", flags=flags)) as opened:
        yield opened


def bench(opened: OpenTarget, folder: Path) -> Bench:
    return Bench(card=CARD, folder=".", opened=opened, store=RunStore(folder))


def check_signals(record: RunRecord) -> None:
    """Host and engine are sampled during the run, on its own clock."""
    frame = record.signals().filter(record.signals()["state"] == "ok")
    names = set(frame["signal"].unique())
    assert names >= OF_EVERY_RUN, OF_EVERY_RUN - names
    assert any(name.startswith(f"{THREAD}/") for name in names)
    end_s = Observation.from_record(record).end_s
    times = frame["time_s"].to_numpy()
    assert ((times >= 0) & (times <= end_s)).any()
    assert times.max() <= end_s + 30.0


def test_the_first_request_after_a_restart_is_measured_and_the_address_stays(cold: OpenTarget, tmp_path: Path) -> None:
    assert cold.pid is not None
    before, url = cold.pid(), cold.target.base_url
    record = run_probe(bench(cold, tmp_path), PROBES["repeat"], QUICK, STEP).record
    assert cold.pid() != before
    assert cold.target.base_url == url
    found = Observation.from_record(record).wait_s
    assert len(found) > 4
    assert found[:4].min() > 0.3  # nobody asked before: not even the wait for the engine to be ready
    assert np.median(found[4:]) < found[:4].min()
    check_signals(record)


def test_an_engine_that_is_not_ours_is_not_restarted(cold: OpenTarget, tmp_path: Path) -> None:
    foreign = replace(cold, restart=None, local=False)
    with pytest.raises(UsageError, match="not started here"):
        run_probe(bench(foreign, tmp_path), PROBES["repeat"], QUICK, STEP)
    with pytest.raises(UsageError, match="own address"):
        run_probe(bench(cold, tmp_path), PROBES["direct"], QUICK, STEP)


def test_a_probe_that_the_budget_cannot_pay_is_not_run_and_says_its_price(cold: OpenTarget, tmp_path: Path) -> None:
    done = diagnose_target(bench(replace(cold, restart=None), tmp_path), budget_s=5.0)
    assert len(done.records) == 1
    assert done.diagnosis.undecided
    assert set(done.not_run) == set(done.diagnosis.wanted)
    assert "are left of the budget" in done.not_run["prompt_ladder"]
    assert done.not_run.get("repeat", "unsupported").startswith("unsupported")
    check_signals(done.records[0])


def test_probes_stop_when_all_is_decided(cold: OpenTarget, tmp_path: Path) -> None:
    kept = Workload.model_validate(BODY | {"promises": ["p90 ttft <= 30 s"]})
    done = diagnose_target(replace(bench(cold, tmp_path), card=kept), budget_s=60.0)
    assert len(done.records) == 1
    assert done.not_run == {}


@pytest.mark.engine
def test_llama_cpp_is_restarted_and_sampled_and_clears_its_own_host_side(tmp_path: Path) -> None:
    options = TargetOptions(model=str(embedded_model()), flags={"n_ctx": "1024", "n_parallel": "2"})
    with open_target(CARD, options) as opened:
        assert opened.pid is not None
        before = opened.pid()
        outcome = bench(opened, tmp_path).one(rate_per_s=1.0, duration_s=3.0)
        subject = Observation.from_record(outcome.record)
        conditions = conditions_of(bench(opened, tmp_path), subject)
        record = run_probe(bench(opened, tmp_path), PROBES["repeat"], conditions, STEP).record
        assert opened.pid() != before
    probe = Observation.from_record(record)
    assert probe.probe == "repeat"
    assert probe.table.answered.all()
    cached = probe.table.cached_tokens
    assert cached[0] == 0  # the restart emptied the cache
    assert (cached[1:] > 0).all()
    assert not np.isnan(probe.server_prefill_s).any()
    for made in (outcome.record, record):
        check_signals(made)
