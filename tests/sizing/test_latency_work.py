"""Work of a step against figures computed by hand; nothing in it is fitted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.errors import UsageError
from setpoint.hardware import find
from setpoint.sizing.latency.shape import LayerKind, Shape, matrices
from setpoint.sizing.latency.work import Split, Work, coverage, stack, step

H100, B200, L40S = find("H100-SXM"), find("B200-SXM"), find("L40S")
# Llama-3.1-8B: 32 layers of 4096, 32 query and 8 KV heads of 128, MLP of 14336, vocabulary 128,256.
ATTENTION = 4096 * (32 + 2 * 8) * 128 + 32 * 128 * 4096
LLAMA = Shape(
    "llama",
    (
        LayerKind(
            32,
            attention=matrices(ATTENTION),
            dense=matrices(3 * 4096 * 14336),
            cache_elements=2 * 8 * 128,
            cache_heads=8,
            decode_operations=4 * 32 * 128,
            prefill_operations=4 * 32 * 128,
            kernels=9,
        ),
    ),
    hidden=4096,
    head=matrices(4096 * 128256),
)
MIXTURE = Shape(
    "mixture",
    (LayerKind(10, attention=matrices(1e6), expert=matrices(1e6, 0.5625, "fp4"), experts=64, experts_per_token=4),),
    hidden=1024,
    head=matrices(1e6),
)


def decode(shape: Shape = LLAMA, split: Split = Split(), batch: float = 1, context: float = 1000) -> Work[float]:  # noqa: B008
    return step(shape, H100, split, tokens=batch, sequences=batch, context=context, prefill=False)


def test_decoding_an_8b_model_alone_reads_its_weights_once() -> None:
    """7.50e9 parameters beside the embedding, in BF16, over 3.35 TB/s: 4.48 ms."""
    parameters = 32 * (ATTENTION + 3 * 4096 * 14336) + 4096 * 128256
    assert parameters == pytest.approx(7.505e9, rel=1e-3)
    assert decode().weights_s == pytest.approx(2 * parameters / 3350e9)
    assert decode().weights_s == pytest.approx(4.48e-3, rel=1e-3)
    assert decode(batch=64).weights_s == decode().weights_s


def test_the_cache_of_an_8b_model_is_128_kib_a_token() -> None:
    assert decode(batch=4, context=1000).cache_s == pytest.approx(4 * 1000 * 128 * 1024 / 3350e9)


def test_operations_are_two_for_each_parameter_and_token() -> None:
    work = step(LLAMA, H100, Split(), tokens=2048, sequences=1, context=1024, prefill=True)
    layers = 32 * (ATTENTION + 3 * 4096 * 14336)
    assert work.wide_s == pytest.approx((2 * 2048 * layers + 2 * 4096 * 128256) / 989e12)
    # Causal attention: 2048 queries over 1024 positions on average, QK and PV, 32 heads of 128.
    assert work.attention_s == pytest.approx(32 * 2048 * 1024 * 4 * 32 * 128 / 989e12)
    assert work.cache_s == pytest.approx(1024 * 128 * 1024 / 3350e9)


def test_tensor_parallelism_divides_work_and_adds_collectives() -> None:
    one, four = decode(batch=8), decode(batch=8, split=Split(4))
    assert four.weights_s == pytest.approx(one.weights_s / 4)
    assert four.cache_s == pytest.approx(one.cache_s / 4)
    assert (one.reduced_s, one.reduced_steps) == (0, 0)
    # Two all-reduces a layer; a ring sends 2 (n - 1) / n of the rows.
    assert four.reduced_s == pytest.approx(32 * 2 * 2 * 3 / 4 * 8 * 4096 * 2 / 450e9)
    assert four.reduced_steps == 32 * 2 * 2


def test_heads_that_are_copied_do_not_shrink_the_cache() -> None:
    assert decode(split=Split(8)).cache_s == decode(split=Split(16)).cache_s


def test_data_parallel_attention_repeats_its_weights_only() -> None:
    whole, parted = decode(split=Split(4)), decode(split=Split(1, dp=4))
    extra = 32 * ATTENTION * 2 * (1 - 1 / 4) / 3350e9
    assert parted.weights_s == pytest.approx(whole.weights_s + extra)


def test_low_precision_is_used_where_the_chip_has_it() -> None:
    on_hopper = step(MIXTURE, H100, Split(), tokens=64, sequences=64, context=10, prefill=False)
    on_blackwell = step(MIXTURE, B200, Split(), tokens=64, sequences=64, context=10, prefill=False)
    assert on_hopper.routed_s == pytest.approx(10 * 2 * 64 * 4 * 1e6 / 989e12)
    assert on_blackwell.routed_s == pytest.approx(10 * 2 * 64 * 4 * 1e6 / 9000e12)


def test_few_tokens_read_few_experts() -> None:
    alone, crowd = decode(MIXTURE, batch=1), decode(MIXTURE, batch=10_000)
    assert alone.experts_s == pytest.approx(10 * 4 * 1e6 * 0.5625 / 3350e9)
    assert crowd.experts_s == pytest.approx(10 * 64 * 1e6 * 0.5625 / 3350e9)


def test_coverage_by_hand() -> None:
    """Two tokens that pick 1 of 4 evenly reach 4 (1 - (3/4)²) = 1.75."""
    assert coverage(4, 1, 2) == pytest.approx(1.75)
    assert coverage(4, 4, 1) == 4


@given(st.integers(1, 512), st.integers(1, 32), st.floats(1, 1e5), st.floats(1, 10))
def test_coverage_lies_between_one_token_and_all(experts: int, per_token: int, tokens: float, more: float) -> None:
    per_token = min(per_token, experts)
    found = coverage(experts, per_token, tokens)
    assert per_token * (1 - 1e-9) <= found <= experts * (1 + 1e-9)
    assert found <= min(experts, per_token * tokens) * (1 + 1e-9)
    assert coverage(experts, per_token, tokens * more) >= found * (1 - 1e-9)


def test_a_window_bounds_what_is_read() -> None:
    kind = LayerKind(1, attention=matrices(1e6), cache_elements=100, decode_operations=10, window=128)
    windowed = Shape("w", (kind,), 64, matrices(1e3))
    at = [decode(windowed, context=c).cache_s for c in (64, 128, 100_000)]
    assert at[0] * 2 == pytest.approx(at[1])
    assert at[1] == at[2]


def test_sparse_attention_still_scans_its_whole_context() -> None:
    kind = LayerKind(
        1, attention=matrices(1e6), cache_elements=100, window=2048, scanned_elements=32, scanned_operations=8
    )
    sparse = Shape("s", (kind,), 64, matrices(1e3))
    assert decode(sparse, context=100_000).cache_s == pytest.approx((2048 * 100 + 100_000 * 32) * 2 / 3350e9)


def test_state_is_read_and_written_whatever_the_context() -> None:
    kind = LayerKind(2, attention=matrices(1e6), state_bytes=1e6)
    recurrent = Shape("r", (kind,), 64, matrices(1e3))
    assert decode(recurrent, batch=3, context=10).cache_s == pytest.approx(2 * 2 * 3 * 1e6 / 3350e9)
    assert decode(recurrent, batch=3, context=10).cache_s == decode(recurrent, batch=3, context=1e6).cache_s


def test_links_outside_a_domain_are_slower() -> None:
    inside = step(LLAMA, H100, Split(8), tokens=8, sequences=8, context=10, prefill=False)
    across = step(LLAMA, H100, Split(16), tokens=8, sequences=8, context=10, prefill=False)
    on_bus = step(LLAMA, L40S, Split(8), tokens=8, sequences=8, context=10, prefill=False)
    assert across.reduced_s / inside.reduced_s == pytest.approx((15 / 16 / 50e9) / (7 / 8 / 450e9))
    assert on_bus.reduced_s / inside.reduced_s == pytest.approx(450 / 32)


def test_quantized_layers_launch_one_more_kernel_a_part() -> None:
    plain = LayerKind(1, attention=matrices(1e6), dense=matrices(1e6), kernels=9)
    narrow = LayerKind(1, attention=matrices(1e6, 1, "fp8"), dense=matrices(1e6, 1, "fp8"), kernels=9)
    assert (plain.launches, narrow.launches) == (9, 11)


@pytest.mark.parametrize(("field", "ranks"), [("tp", (0, 1, 1)), ("dp", (1, 0, 1)), ("pp", (1, 1, 0))])
def test_a_split_counts_from_one(field: str, ranks: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match=f"{field} is 0"):
        Split(*ranks)


def test_drafts_of_a_sequence_read_its_cache_together() -> None:
    alone, drafted = (step(LLAMA, H100, Split(), tokens=t, sequences=2, context=1000, prefill=False) for t in (2, 8))
    assert drafted.cache_s == alone.cache_s
    assert drafted.attention_s == pytest.approx(4 * alone.attention_s)


def test_columns_keep_rows_in_order() -> None:
    columns = stack([decode(batch=1), decode(batch=2)])
    assert list(columns.tokens) == [1, 2]
    assert math.isclose(columns.cache_s[1], 2 * columns.cache_s[0])
