"""Laws of the split: no time is lost or invented."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnosis.evidence import Costs, card, evidence, exchange, ladder, outputs

from setpoint.diagnosis.concurrency import Concurrency
from setpoint.diagnosis.parts import Part

CARD = card("p90 ttft <= 50 ms", "p90 tpot <= 5 ms", prefix={"tokens": 50})
seconds = st.floats(0.0, 2.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 30), seconds, seconds, st.integers(0, 6), st.integers(20, 200)), min_size=5, max_size=25
    )
)
@settings(max_examples=25, deadline=None)
def test_the_parts_of_a_request_add_up_to_its_time(drawn: list[tuple[float, float, float, int, int]]) -> None:
    rows = [
        exchange(i, at, Costs(queue_s=queue, stall_s=stall, reasoning=hidden), prompt=prompt)
        for i, (at, queue, stall, hidden, prompt) in enumerate(drawn)
    ]
    e = evidence(CARD, rows, ladder(CARD, Costs()), outputs(CARD, Costs()))
    table, parts = e.subject.table, e.parts
    whole = table.first_visible_s - table.scheduled_s
    assert np.allclose(sum(parts.first.values()), whole, atol=1e-6)
    assert np.allclose(sum(parts.gaps.values()), parts.gap_s, atol=1e-6)
    assert all((x >= -1e-9).all() for x in (*parts.first.values(), *parts.gaps.values()))


def test_the_wait_beyond_a_request_alone_is_queue() -> None:
    rows = [exchange(i, i * 3.0, Costs(queue_s=0.5 * (i % 2))) for i in range(20)]
    e = evidence(CARD, rows, ladder(CARD, Costs()))
    assert np.allclose(e.parts.first[Part.QUEUE][1::2], 0.5, atol=0.01)
    assert np.allclose(e.parts.first[Part.QUEUE][::2], 0.0, atol=0.01)


def test_repeated_tokens_that_were_not_cached_are_a_cache_miss() -> None:
    rows = [exchange(i, i * 3.0, Costs(prefill_s=0.01)) for i in range(10)]
    e = evidence(CARD, rows, ladder(CARD, Costs(prefill_s=0.01)))
    assert np.allclose(e.parts.first[Part.CACHE_MISS], 0.5, rtol=0.05)  # 50 of 100 tokens repeat
    assert np.allclose(e.parts.first[Part.PREFILL], 0.5, rtol=0.05)


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 10)), max_size=20), st.floats(0, 50), st.floats(0, 10))
def test_seconds_of_company_equal_the_sum_of_overlaps(
    spans: list[tuple[float, float]], at: float, length: float
) -> None:
    starts = np.array([a for a, _ in spans])
    ends = np.array([a + b for a, b in spans])
    expected = sum(max(0.0, min(a + b, at + length) - max(a, at)) for a, b in spans)
    found = Concurrency(starts, ends).seconds(np.array([at]), np.array([at + length]))[0]
    assert abs(found - expected) < 1e-6
