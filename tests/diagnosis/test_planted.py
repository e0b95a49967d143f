"""Bottlenecks planted on the fake engine, diagnosed over real sockets. ``benchmarks/confusion.py`` plants them all."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from benchmarks.planted_run import diagnose_plant

from setpoint.diagnosis.diagnosis import FILE, diagnose_records
from setpoint.diagnosis.hypotheses import HYPOTHESES
from setpoint.diagnosis.hypothesis import Conclusion
from setpoint.testing.planted import PLANTED
from setpoint.workload.card import Workload


@pytest.mark.parametrize("name", ["queueing", "reasoning", "failures"])
def test_a_planted_bottleneck_is_found_and_nothing_else_is_accused(name: str, tmp_path: Path) -> None:
    plant = replace(PLANTED[name], traffic=PLANTED[name].traffic | {"duration": "5s"})
    done = diagnose_plant(plant, tmp_path)
    found = done.diagnosis
    supported = [f.name for f in found.supported]
    # Others may really take this machine's CPU, and the client, which has no core of its own, may really be late by it.
    late_s = max(e.started_s - e.scheduled_s for e in done.records[0].iter_exchanges())
    others = {"neighbour", "client"} if late_s > 0.005 else {"neighbour"}
    assert set(supported) <= {name} | others, found.headline
    planted = next(f for f in found.findings if f.name == name)
    if planted.conclusion is not Conclusion.SUPPORTED:  # then the machine did not let it be judged, and that is said
        assert planted.conclusion is Conclusion.UNDECIDED
        assert "waiting for a CPU" in planted.reason or "client may have been" in planted.reason
    saved = msgspec.json.decode((done.records[0].path / FILE).read_bytes())
    assert saved == msgspec.json.decode(msgspec.json.encode(found.to_dict()))
    again = diagnose_records(done.records[0], done.records[1:])
    assert again == found  # from records alone, the same


def test_every_hypothesis_is_planted_and_every_plant_is_a_card() -> None:
    assert {c for p in PLANTED.values() for c in p.causes} == set(HYPOTHESES)
    for plant in PLANTED.values():
        Workload.model_validate(plant.card())
