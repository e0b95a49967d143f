import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator, Figure, catalogue, find
from setpoint.sizing.latency import BACKENDS, Request, Shape, Split, at_rate, estimate, estimates, goodput
from setpoint.sizing.latency.shape import LayerKind, matrices
from setpoint.sizing.latency.terms import TERMS, packaged

H100 = find("H100-SXM")
LLAMA = Shape(
    "llama",
    (
        LayerKind(
            32,
            attention=matrices(41_943_040),
            dense=matrices(176_160_768),
            cache_elements=2048,
            cache_heads=8,
            decode_operations=16384,
            prefill_operations=16384,
            kernels=9,
        ),
    ),
    hidden=4096,
    head=matrices(525_336_576),
)
MIXTURE = dataclasses.replace(
    LLAMA,
    name="mixture",
    layers=(
        dataclasses.replace(
            LLAMA.layers[0], dense=matrices(1e7), expert=matrices(1e7, 1, "fp8"), experts=64, experts_per_token=4
        ),
    ),
    draft_layers=1,
)

shapes = st.sampled_from([LLAMA, MIXTURE])
splits = st.sampled_from([Split(1), Split(2), Split(8), Split(1, dp=4, expert=True), Split(2, pp=2)])
lengths = st.floats(1, 50_000)
counts = st.floats(1, 1000)
backends = st.sampled_from(BACKENDS)


def ask(**changed: object) -> Request:
    plain = Request(LLAMA, H100, Split(1), input_tokens=1000, output_tokens=300, sessions=8)
    return dataclasses.replace(plain, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("accelerator", catalogue().values(), ids=lambda a: a.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_decoding_alone_is_never_faster_than_reading_the_weights(accelerator: Accelerator, backend: str) -> None:
    found = estimate(ask(accelerator=accelerator, sessions=1, backend=backend))
    bound = LLAMA.weight_bytes / accelerator.bandwidth_bytes_per_s.value
    assert bound < found.tpot_s.expected
    assert found.step_s < 3 * bound + 5e-3


def test_an_8b_model_on_an_h100_is_where_it_is_known_to_be() -> None:
    """Published single-stream speeds of Llama-3.1-8B in BF16 on one H100 lie between 120 and 170 tokens a second."""
    found = estimate(ask(sessions=1))
    assert 120 < 1 / found.tpot_s.expected < 170
    assert found.limited_by == "reading weights"
    assert found.coverage == 0.8
    assert found.tpot_s.low < found.tpot_s.expected < found.tpot_s.high


@settings(max_examples=60)
@given(shapes, splits, lengths, lengths, counts, backends)
def test_parts_add_up_and_littles_law_holds(
    shape: Shape, split: Split, prompt: float, answer: float, sessions: float, backend: str
) -> None:
    found = estimate(
        ask(shape=shape, split=split, input_tokens=prompt, output_tokens=answer, sessions=sessions, backend=backend)
    )
    ttft, tpot = found.ttft_s.expected, found.tpot_s.expected
    assert sum(found.shares.values()) == pytest.approx(1)
    assert all(-1e-9 <= share <= 1 for share in found.shares.values())
    assert found.requests_per_s * (ttft + answer * tpot) == pytest.approx(sessions)
    assert ttft > found.queue_s + found.slot_s
    assert found.stall_s > found.step_s
    assert tpot >= found.step_s
    assert 0 <= found.busy < 1


@settings(max_examples=60)
@given(shapes, splits, lengths, lengths, counts, st.floats(1.01, 4), backends)
def test_more_sessions_are_never_faster(
    shape: Shape, split: Split, prompt: float, answer: float, sessions: float, more: float, backend: str
) -> None:
    few, many = estimates(
        [
            ask(shape=shape, split=split, input_tokens=prompt, output_tokens=answer, sessions=n, backend=backend)
            for n in (sessions, sessions * more)
        ]
    )
    assert many.step_s >= few.step_s * (1 - 1e-9)
    assert many.tpot_s.expected >= few.tpot_s.expected * 0.999


@settings(max_examples=60)
@given(shapes, splits, lengths, lengths, counts, st.floats(1.01, 4))
def test_longer_prompts_and_slower_memory_are_never_faster(
    shape: Shape, split: Split, prompt: float, answer: float, sessions: float, more: float
) -> None:
    slower = dataclasses.replace(
        H100, bandwidth_bytes_per_s=Figure(H100.bandwidth_bytes_per_s.value / more, "assumed", "test")
    )
    plain = ask(shape=shape, split=split, input_tokens=prompt, output_tokens=answer, sessions=sessions)
    base, longer, slow = estimates(
        [plain, dataclasses.replace(plain, input_tokens=prompt * more), dataclasses.replace(plain, accelerator=slower)]
    )
    assert longer.prefill_s >= base.prefill_s
    assert longer.step_s >= base.step_s
    assert slow.prefill_s >= base.prefill_s
    assert slow.step_s > base.step_s


@given(lengths, st.floats(0, 0.99))
def test_a_cached_prefix_shortens_prefill(prompt: float, share: float) -> None:
    assume(prompt * (1 - share) >= 1)
    base, cached = estimates([ask(input_tokens=prompt), ask(input_tokens=prompt, cached_tokens=prompt * share)])
    assert cached.prefill_s <= base.prefill_s * (1 + 1e-9)
    assert cached.step_s == base.step_s


def test_chunks_read_the_weights_again_and_bound_the_stall() -> None:
    whole, cut = estimates([ask(input_tokens=8192), ask(input_tokens=8192, chunk_tokens=512)])
    assert cut.prefill_s > whole.prefill_s
    assert cut.stall_s < whole.stall_s / 4


def test_sessions_without_room_wait_by_littles_law() -> None:
    """Twice as many sessions as fit: each waits as long as one is served."""
    found = estimate(ask(sessions=64, slots=32))
    served = found.ttft_s.expected - found.slot_s + 300 * found.tpot_s.expected
    assert found.slot_s == pytest.approx(served)
    assert found.limited_by == "room in the cache"
    assert estimate(ask(sessions=32, slots=32)).slot_s == 0


def gain_of_drafting(shape: Shape, sessions: float) -> float:
    shape = dataclasses.replace(shape, draft_layers=1)
    plain, drafted = estimates([ask(shape=shape, sessions=sessions, drafting=d) for d in (False, True)])
    return plain.step_s / drafted.step_s


def test_drafting_pays_while_weights_are_read_and_costs_once_compute_is_full() -> None:
    assert gain_of_drafting(LLAMA, 1) > 1.8
    assert gain_of_drafting(LLAMA, 2048) < 1.1


def test_drafts_of_a_mixture_reach_further_experts() -> None:
    assert gain_of_drafting(MIXTURE, 1) < gain_of_drafting(LLAMA, 1)


def test_what_was_never_measured_has_wider_ranges_and_says_so() -> None:
    known, unknown, piped = estimates([ask(), ask(accelerator=find("MI300X")), ask(split=Split(1, pp=2))])
    assert unknown.coverage is None
    assert piped.coverage is None
    assert unknown.tpot_s.high / unknown.tpot_s.expected > known.tpot_s.high / known.tpot_s.expected
    assert any("MI300X" in note for note in unknown.notes)
    assert any("pipeline" in note for note in piped.notes)
    assert any("more than NVLink4 joins" in note for note in estimate(ask(split=Split(16))).notes)
    assert known.notes == ()


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    asked = [
        ask(),
        ask(sessions=200, backend="sglang"),
        ask(shape=MIXTURE, split=Split(1, dp=4), accelerator=find("L4")),
    ]
    assert estimates(asked) == [estimate(one) for one in asked]
    assert estimates([]) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input_tokens": 0}, "input_tokens is 0"),
        ({"output_tokens": float("nan")}, "output_tokens is nan"),
        ({"sessions": 0.5}, "sessions is 0.5"),
        ({"chunk_tokens": 0}, "chunk_tokens is 0"),
        ({"cached_tokens": 1000}, "cached_tokens is 1000"),
        ({"cached_tokens": -1}, "cached_tokens is -1"),
        ({"slots": 0.2}, "no latency to estimate"),
        ({"backend": "llamacpp"}, "'llamacpp' is not known. Use vllm, sglang, trtllm"),
        ({"drafting": True}, "llama has no layers of its own that draft"),
    ],
)
def test_what_cannot_be_asked_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ask(**changed)


def test_goodput_keeps_its_limits_and_shrinks_with_them() -> None:
    loose = goodput(ask(slots=300), ttft_limit_s=1.0, tpot_limit_s=0.05)
    tight = goodput(ask(slots=300), ttft_limit_s=1.0, tpot_limit_s=0.02)
    for found, limit in ((loose, 0.05), (tight, 0.02)):
        assert found.at is not None
        assert found.at.tpot_s.expected <= limit
        assert found.at.ttft_s.expected <= 1.0
        assert found.requests_per_s.expected == pytest.approx(found.at.requests_per_s)
    assert 0 < tight.requests_per_s.expected < loose.requests_per_s.expected
    assert loose.requests_per_s.low <= loose.requests_per_s.expected <= loose.requests_per_s.high


def test_goodput_is_zero_where_one_session_breaks_the_limits() -> None:
    found = goodput(ask(), tpot_limit_s=1e-3)
    assert found.requests_per_s.expected == 0
    assert found.at is None


def test_an_arrival_rate_finds_its_sessions() -> None:
    found = at_rate(ask(), 5.0)
    assert found is not None
    assert found.requests_per_s == pytest.approx(5.0, rel=0.02)
    assert at_rate(ask(slots=10), 1e5) is None


def test_limits_and_rates_are_above_zero() -> None:
    with pytest.raises(UsageError, match="ttft_limit_s is 0"):
        goodput(ask(), ttft_limit_s=0)
    with pytest.raises(UsageError, match="requests_per_s is 0"):
        at_rate(ask(), 0)


def test_fitted_terms_stay_within_their_meaning() -> None:
    values = packaged().values
    for name, term in TERMS.items():
        assert values[name] > 0, name
        assert term.limit is None or values[name] <= term.limit * 1.001, name
