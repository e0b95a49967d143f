"""Standstills: silence in which the engine did nothing, against silence in which it worked or was kept from it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.diagnosis.evidence import GOOD_CLIENT, Costs, card, exchange, ladder, observe

from setpoint.diagnosis.diagnosis import Diagnosis, diagnose
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Conclusion
from setpoint.diagnosis.observation import Observation, Readings
from setpoint.diagnosis.parts import Part
from setpoint.records.exchange import Exchange, Outcome

CARD = card("p90 ttft <= 1 s")
BEGIN, END = 10.0, 18.0
TIMES = np.arange(0.0, 40.0)


def rows() -> list[Exchange]:
    """A request a second; those of the silence get their first token at its end."""
    return [exchange(i, float(i), Costs(queue_s=END - i if BEGIN <= i < END else 0.0)) for i in range(30)]


def subject(used: float, waited: float, *, told: bool = True) -> Observation:
    """Of an engine that uses, and waits for, so many cores in the silence, and half a core outside it."""
    calm = observe(rows(), CARD, gauges={"requests_waiting": 0.1}, client=GOOD_CLIENT)
    inside = (TIMES > BEGIN) & (TIMES <= END)
    cpu = Readings(TIMES, np.cumsum(np.where(inside, used, 0.5)))
    wait = Readings(TIMES, np.cumsum(np.where(inside, waited, 0.01)))
    return replace(
        calm, signals={**calm.signals, **({"engine_cpu_time": cpu, "engine_cpu_wait": wait} if told else {})}
    )


def found(observation: Observation) -> Diagnosis:
    return diagnose(Evidence(observation, (ladder(CARD, Costs()),)))


def verdict(diagnosis: Diagnosis, name: str) -> Conclusion:
    return next(f.conclusion for f in diagnosis.findings if f.name == name)


def test_an_engine_that_did_nothing_for_seconds_and_then_went_on_was_wedged() -> None:
    frozen = subject(0.0, 0.0)
    ((begin, end),) = frozen.standstills
    assert (begin, end) == pytest.approx((BEGIN, END), abs=0.2)
    result = found(frozen)
    assert [f.name for f in result.supported] == ["wedged"]
    late = int((frozen.table.first_visible_s - frozen.table.scheduled_s > 1.0).sum())
    assert dict(result.attribution[0].causes) == {"silence": late}


@pytest.mark.parametrize(("used", "waited"), [(0.9, 0.0), (0.0, 0.9)])
def test_an_engine_that_worked_or_was_kept_from_it_was_not_wedged(used: float, waited: float) -> None:
    assert subject(used, waited).standstills == []
    assert verdict(found(subject(used, waited)), "wedged") is Conclusion.REFUTED


def test_without_its_cpu_time_nobody_says_that_an_engine_stood_still() -> None:
    assert subject(0.0, 0.0, told=False).standstills == []


def test_nobody_stands_still_while_nothing_is_asked() -> None:
    pause = [exchange(i, float(i) if i < 5 else i + 20.0, Costs()) for i in range(10)]
    idle = Readings(TIMES, np.zeros(len(TIMES)))
    calm = replace(observe(pause, CARD), signals={"engine_cpu_time": idle, "engine_cpu_wait": idle})
    assert calm.standstills == []


def test_a_stream_that_the_standstill_interrupts_is_silent_and_not_stalled() -> None:
    stream = exchange(0, BEGIN - 0.5, Costs(stall_s=END - BEGIN), output=60)
    idle = Readings(TIMES, np.where(TIMES < BEGIN, TIMES, BEGIN))
    one = replace(observe([stream], CARD), signals={"engine_cpu_time": idle, "engine_cpu_wait": idle})
    parts = Evidence(one, (ladder(CARD, Costs()),)).parts
    assert float(parts.of_stream(Part.SILENT)[0]) == pytest.approx(END - BEGIN, abs=0.1)
    assert float(sum(parts.of_stream(p).sum() for p in (Part.STALL, Part.STALL_PREFILL))) == 0.0


def test_a_request_that_failed_at_once_keeps_nobody_waiting() -> None:
    failed = [exchange(i, float(i), Costs(), outcome=Outcome.ERROR) for i in range(0, 30, 6)]
    idle = Readings(TIMES, np.zeros(len(TIMES)))
    one = replace(observe(failed, CARD), signals={"engine_cpu_time": idle, "engine_cpu_wait": idle})
    assert one.standstills == []
