"""The service model recovers what was planted, and says what the runs do not determine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnosis.evidence import Costs, card, exchange, ladder, observe, outputs

from setpoint.diagnosis.fit import fit
from setpoint.diagnosis.service_model import fit_service_model
from setpoint.records.exchange import Exchange

CARD = card("p90 ttft <= 1 s")


@given(st.floats(0.001, 0.5), st.floats(1e-5, 0.01), st.floats(0.002, 0.1))
@settings(max_examples=15, deadline=None)
def test_overhead_prefill_and_step_are_recovered(overhead_s: float, prefill_s: float, step_s: float) -> None:
    costs = Costs(overhead_s=overhead_s, prefill_s=prefill_s, step_s=step_s)
    model = fit_service_model([ladder(CARD, costs), outputs(CARD, costs)])
    assert model.overhead_s is not None
    assert model.prefill_s_per_token is not None
    assert model.step_s is not None
    assert model.overhead_s.value == pytest.approx(overhead_s, rel=0.05, abs=1e-4)
    assert model.prefill_s_per_token.value == pytest.approx(prefill_s, rel=0.05)
    assert model.step_s.value == pytest.approx(step_s, rel=0.05)
    assert model.step_s_per_stream is None  # nobody was in company
    assert model.prefill_s_per_token.low <= model.prefill_s_per_token.value <= model.prefill_s_per_token.high


def test_what_a_stream_adds_is_recovered_from_waves() -> None:
    costs = Costs()
    rows: list[Exchange] = []
    for wave, size in enumerate((1, 2, 4, 8) * 2):
        rows += [
            exchange(len(rows) + i, wave * 5.0, costs, streams=size, per_stream_s=0.004, output=20) for i in range(size)
        ]
    model = fit_service_model([observe(rows, CARD, probe="concurrency_ladder")])
    assert model.step_s_per_stream is not None
    assert model.step_s_per_stream.value == pytest.approx(0.004, rel=0.05)
    assert model.step_s is not None
    assert model.step_s.value == pytest.approx(0.01, rel=0.1)


def test_prompts_of_one_length_do_not_tell_prefill_from_overhead() -> None:
    rows = [exchange(i, i * 2.0, Costs()) for i in range(20)]
    model = fit_service_model([observe(rows, CARD)])
    assert model.prefill_s_per_token is None
    assert model.overhead_s is None
    assert model.alone_s is not None
    assert model.alone_s.value == pytest.approx(0.03)


def test_nobody_alone_determines_nothing() -> None:
    rows = [exchange(i, 0.0, Costs(queue_s=1.0)) for i in range(20)]
    model = fit_service_model([observe(rows, CARD)])
    assert (model.overhead_s, model.alone_s, model.wait_residual) == (None, None, None)


def test_a_tenth_of_outliers_does_not_bend_the_fit() -> None:
    x = np.linspace(10, 500, 60)
    y = 0.02 + 0.001 * x
    y[::10] *= 8
    [intercept, slope], residual = fit(np.stack([np.ones(60), x], axis=1), y)
    assert slope.value == pytest.approx(0.001, rel=0.05)
    assert intercept.value == pytest.approx(0.02, rel=0.3)
    assert residual < 0.05
