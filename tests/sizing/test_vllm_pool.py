"""vLLM's pool: groups, blocks and printed lines beyond the logged cases."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import shared
from tests.models.specs import GEMMA_3_27B, stored

from setpoint.errors import UsageError
from setpoint.models.layer import Attention
from setpoint.sizing.deployment import Deployment, stages
from setpoint.sizing.engine import engine_of
from setpoint.sizing.pages import layer_pages
from setpoint.sizing.vllm_pool import Pool, blocks_of_request, grouped, longest_context, pool_of

GIB = 2**30
ROWS = shared.table("kv_truth.csv")


def pool(name: str, version: str, gib: float, longest: int = 8192, batch: int = 2048, **more: object) -> Pool:
    return pool_of(stored(name), Deployment(engine_of("vllm", version), longest, **more), gib * GIB, batch)  # type: ignore[arg-type]


def test_the_estimated_length_of_a_pipeline_counts_all_layers_in_old_versions() -> None:
    """Row 18: 16 and 32 layers on two stages; 3.18 GiB are said to hold 34,736 tokens."""
    spec = stored("Qwen--Qwen3-30B-A3B")
    deployment = Deployment(engine_of("vllm", "0.15.2rc1"), 262144, pp=2, stage_layers=(16, 32), kv_dtype="bfloat16")
    found = longest_context(spec, deployment, float(ROWS[18]["kv_gib"]) * GIB, 2048)
    assert found == pytest.approx(float(ROWS[18]["kv_tokens"]), rel=0.01)
    newer = replace(deployment, engine=engine_of("vllm", "0.22.0"))
    assert longest_context(spec, newer, 3.18 * GIB, 2048) == pytest.approx(1.5 * found, rel=0.01)


def test_keeping_latents_as_keys_and_values_costs_as_logged() -> None:
    """Row 22: 15,872 tokens became 25,984 when each latent was no longer kept twice (keys of the indexer beside it)."""
    twice, once = 2 * 576 * 2, (576 + 128) * 2
    assert twice / once == pytest.approx(25984 / 15872, rel=0.01)
    pages = layer_pages(
        stored("deepseek-ai--DeepSeek-V3.2"), Deployment(engine_of("vllm", "0.15.0"), 8192, kv_dtype="bfloat16")
    )
    assert {one.page.size // one.page.tokens for one in pages} == {576 * 2, 132}


def test_gpt_oss_has_two_groups_of_equal_size() -> None:
    groups = grouped(stored("openai--gpt-oss-120b"), Deployment(engine_of("vllm", "0.11.0"), 131072))
    assert [len(group.layers) for group in groups] == [18, 18]


def test_a_draft_layer_pads_the_windows_rather_than_doubling_the_groups() -> None:
    spec = stored("openai--gpt-oss-20b")
    drafted = replace(spec, mtp_layers=(spec.layers[1],))
    deployment = Deployment(engine_of("vllm", "0.22.0"), 131072, draft_layers=1)
    assert [len(group.layers) for group in grouped(drafted, deployment)] == [12, 13]


def test_gemma_4_global_layers_get_longer_blocks() -> None:
    groups = grouped(stored("google--gemma-4-26B-A4B"), Deployment(engine_of("vllm", "0.22.0"), 32768))
    assert sorted({(group.page.kind.value, group.page.tokens) for group in groups}) == [("full", 32), ("sliding", 16)]
    assert [len(group.layers) for group in groups] == [5] * 6


def test_without_the_hybrid_manager_windows_keep_everything() -> None:
    plain = Deployment(engine_of("vllm", "0.11.0"), 131072, hybrid_manager=False)
    (group,) = grouped(GEMMA_3_27B, plain)
    assert len(group.layers) == 62


def test_chunks_keep_everything_before_016_unless_asked_otherwise() -> None:
    spec = stored("meta-llama--Llama-4-Scout-17B-16E-Instruct")
    old, new = (Deployment(engine_of("vllm", version), 131072) for version in ("0.12.0", "0.18.0"))
    assert [len(group.layers) for group in grouped(spec, old)] == [48]
    assert [len(group.layers) for group in grouped(spec, new)] == [12] * 4
    assert len(grouped(spec, replace(old, hybrid_manager=True))) == 4


def test_pages_that_do_not_divide_are_refused_before_they_could_be_padded() -> None:
    spec = stored("XiaomiMiMo--MiMo-V2-Flash")
    full, near = spec.layers[0].mixer, spec.layers[1].mixer
    assert isinstance(full, Attention)
    assert isinstance(near, Attention)
    odd = replace(spec, layers=(replace(spec.layers[0], mixer=replace(full, head_dim=200)), spec.layers[1]))
    with pytest.raises(UsageError, match=r"vLLM 0\.12\.0 cannot serve this model: a page of"):
        grouped(odd, Deployment(engine_of("vllm", "0.12.0"), 8192))
    assert len({group.page.size for group in grouped(odd, Deployment(engine_of("vllm", "0.22.0"), 8192))}) == 1


def test_the_first_engine_core_divides_by_all_layers() -> None:
    found = pool_of(GEMMA_3_27B, Deployment(engine_of("vllm", "0.7.3"), 8192), 62 * 8192 * 16 * 1000, 8192)
    assert (found.blocks, found.printed_tokens) == (1000, 16000)


def test_context_parallel_ranks_multiply_the_tokens() -> None:
    one = pool("deepseek-ai--DeepSeek-R1", "0.14.0", 20, tp=8, kv_dtype="bfloat16")
    four = pool("deepseek-ai--DeepSeek-R1", "0.14.0", 20, tp=8, dcp=4, kv_dtype="bfloat16")
    assert four.printed_tokens == 4 * one.printed_tokens


def test_the_stage_with_most_layers_decides() -> None:
    even = pool("Qwen--Qwen3-30B-A3B", "0.12.0", 4, pp=2)
    uneven = pool("Qwen--Qwen3-30B-A3B", "0.12.0", 4, pp=2, stage_layers=(16, 32))
    assert even.printed_tokens == pytest.approx(uneven.printed_tokens * 32 / 24, rel=0.001)


def test_left_over_layers_go_to_the_stages_before_the_last() -> None:
    spec = stored("deepseek-ai--DeepSeek-R1")
    deployment = Deployment(engine_of("vllm", "0.14.0"), 8192, pp=4)
    assert [len(stage) for stage in stages(spec, deployment)] == [15, 15, 16, 15]


def test_deepseek_v4_has_the_layout_of_vllm_027() -> None:
    """Computed by hand from its source: 21 layers with ratio 4, 20 with 128, 44 windows; 1,002,240 bytes a block.

    A log of a build with two further full layers (index id 58509553119) has 8,678 blocks in 8.71 GiB: 1,077,120 bytes.
    """
    spec = stored("deepseek-ai--DeepSeek-V4-Flash")
    deployment = Deployment(engine_of("vllm", "0.27.1"), 1048576, kv_dtype="fp8", draft_layers=1)
    found = pool_of(spec, deployment, 8.71 * GIB, 4096)
    assert found.block_bytes == 21 * 37440 + 21 * 8640 + 20 * 1728 == 1002240
    assert found.block_bytes + 2 * 37440 == 1077120
    assert len(found.groups) == 5


def test_deepseek_v4_holds_what_a_log_says() -> None:
    """Index id 61561276785, July 2026: 20.36 GiB of one rank are said to hold 3,076,565 tokens, 2.93 requests of 1M."""
    spec = stored("deepseek-ai--DeepSeek-V4-Flash")
    deployment = Deployment(engine_of("vllm", "0.24.0"), 1048576, tp=2, kv_dtype="fp8", draft_layers=1)
    found = pool_of(spec, deployment, 20.36 * GIB, 8192)
    assert found.printed_tokens == pytest.approx(3076565, rel=0.003)
    assert round(found.printed_concurrency, 2) == 2.93


@given(st.floats(0.5, 60), st.floats(0, 10))
def test_more_memory_never_holds_fewer_tokens(gib: float, more: float) -> None:
    spec = stored("openai--gpt-oss-20b")
    for version in ("0.11.0", "0.22.0"):
        deployment = Deployment(engine_of("vllm", version), 131072)
        less, greater = (pool_of(spec, deployment, size * GIB, 8192) for size in (gib, gib + more))
        assert greater.printed_tokens >= less.printed_tokens
        assert greater.blocks >= less.blocks


@given(st.integers(1, 200000), st.integers(0, 5000))
def test_a_longer_request_never_needs_fewer_blocks(tokens: int, more: int) -> None:
    spec, deployment = GEMMA_3_27B, Deployment(engine_of("vllm", "0.22.0"), 262144)
    groups = grouped(spec, deployment)
    assert blocks_of_request(groups, tokens, spec, deployment, 2048) <= blocks_of_request(
        groups, tokens + more, spec, deployment, 2048
    )


def test_a_model_without_any_cache_has_no_pool() -> None:
    spec = stored("nvidia--Nemotron-H-56B-Base-8K")
    bare = replace(spec, layers=tuple(layer for layer in spec.layers if layer.mixer is None))
    found = pool_of(bare, Deployment(engine_of("vllm", "0.22.0"), 8192), 10 * GIB, 2048)
    assert (found.groups, found.printed_tokens) == ((), 0)
