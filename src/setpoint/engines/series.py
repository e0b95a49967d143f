"""Which series of which engine is which signal.

One row a signal and engine. Names stand newest first with the versions that had them, as far as wheels and sources
were compared (vLLM 0.8 to 0.33, SGLang 0.5.1 to 0.5.23, TensorRT-LLM 050f80d, llama.cpp 00dc805, TGI db931fc). A row
without names says that the engine does not export the signal: it is ``unsupported``, never zero.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a value changes."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Over(StrEnum):
    """How values of several label sets (engines, ranks) become one."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a series.

    Attributes:
        text: As exported; for counters with ``_total``.
        since: First version that has it, where known.
        until: First version without it, where known.
    """

    text: str
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One signal of one engine.

    Attributes:
        signal: Canonical name.
        kind: Gauge or counter.
        unit: Of the canonical value.
        names: Newest first; empty when the engine does not export it.
        over: How label sets combine.
        labels: Only label sets with these values count (SGLang repeats a gauge per priority).
        caveat: What a reader must know.
    """

    signal: str
    kind: Kind
    unit: str
    names: tuple[Name, ...] = ()
    over: Over = Over.SUM
    labels: tuple[tuple[str, str], ...] = ()
    caveat: str = ""


def _gauge(
    signal: str, unit: str, *names: Name | str, over: Over = Over.SUM, caveat: str = "", **labels: str
) -> Series:
    named = tuple(n if isinstance(n, Name) else Name(n) for n in names)
    return Series(signal, Kind.GAUGE, unit, named, over, tuple(labels.items()), caveat)


def _counter(signal: str, unit: str, *names: Name | str, caveat: str = "") -> Series:
    named = tuple(n if isinstance(n, Name) else Name(n) for n in names)
    return Series(signal, Kind.COUNTER, unit, named, Over.SUM, (), caveat)


VLLM = (
    _gauge("requests_running", "requests", "vllm:num_requests_running", caveat="read 0 during a real wedge: no proof of life"),
    _gauge("requests_waiting", "requests", "vllm:num_requests_waiting"),
    _gauge(
        "kv_usage", "ratio", Name("vllm:kv_cache_usage_perc", since="0.9.2"),
        Name("vllm:gpu_cache_usage_perc", until="0.12"), over=Over.MAX, caveat="named per cent, is a ratio",
    ),
    _counter("prompt_tokens", "tokens", "vllm:prompt_tokens_total"),
    _counter("generation_tokens", "tokens", "vllm:generation_tokens_total"),
    _counter(
        "prefix_cache_queries", "tokens", Name("vllm:prefix_cache_queries_total", since="0.9.2"),
        Name("vllm:gpu_prefix_cache_queries_total", until="0.12"), caveat="blocks before 0.9, tokens after",
    ),
    _counter(
        "prefix_cache_hits", "tokens", Name("vllm:prefix_cache_hits_total", since="0.9.2"),
        Name("vllm:gpu_prefix_cache_hits_total", until="0.12"), caveat="blocks before 0.9, tokens after",
    ),
    _counter("preemptions", "events", "vllm:num_preemptions_total"),
    _counter("spec_drafted", "tokens", "vllm:spec_decode_num_draft_tokens_total"),
    _counter("spec_accepted", "tokens", "vllm:spec_decode_num_accepted_tokens_total"),
    _counter("ttft_sum", "s", "vllm:time_to_first_token_seconds_sum"),
    _counter("ttft_count", "requests", "vllm:time_to_first_token_seconds_count"),
    _counter("queue_time_sum", "s", "vllm:request_queue_time_seconds_sum", caveat="finished requests only"),
    _counter("queue_time_count", "requests", "vllm:request_queue_time_seconds_count"),
)  # fmt: skip
SGLANG = (
    _gauge("requests_running", "requests", "sglang:num_running_reqs", over=Over.MAX, priority="", caveat="ranks repeat it"),
    _gauge("requests_waiting", "requests", "sglang:num_queue_reqs", over=Over.MAX, priority="", caveat="without grammar and PD queues"),
    _gauge("kv_usage", "ratio", "sglang:token_usage", over=Over.MAX),
    _counter("prompt_tokens", "tokens", "sglang:prompt_tokens_total"),
    _counter("generation_tokens", "tokens", "sglang:generation_tokens_total"),
    Series("prefix_cache_queries", Kind.COUNTER, "tokens"),
    _counter("prefix_cache_hits", "tokens", "sglang:cached_tokens_total"),
    _counter(
        "preemptions", "requests", Name("sglang:num_retracted_requests_total", since="0.5.9"),
        Name("sglang:num_retractions", until="0.5.9"), Name("sglang:total_retracted_reqs", until="0.5.5"),
    ),
    Series("spec_drafted", Kind.COUNTER, "tokens"),
    Series("spec_accepted", Kind.COUNTER, "tokens", caveat="a rate is exported, not a count"),
    _counter("ttft_sum", "s", "sglang:time_to_first_token_seconds_sum"),
    _counter("ttft_count", "requests", "sglang:time_to_first_token_seconds_count"),
    _counter("queue_time_sum", "s", Name("sglang:queue_time_seconds_sum", since="0.5.5")),
    _counter("queue_time_count", "requests", Name("sglang:queue_time_seconds_count", since="0.5.5")),
)  # fmt: skip
TRTLLM = (
    _gauge("requests_running", "requests", "trtllm_num_requests_running", caveat="served at /prometheus/metrics"),
    _gauge("requests_waiting", "requests", "trtllm_num_requests_waiting"),
    _gauge("kv_usage", "ratio", "trtllm_kv_cache_utilization", over=Over.MAX),
    _counter("prompt_tokens", "tokens", "trtllm_prompt_tokens_total"),
    _counter("generation_tokens", "tokens", "trtllm_generation_tokens_total"),
    Series("prefix_cache_queries", Kind.COUNTER, "tokens"),
    _counter("prefix_cache_hits", "tokens", "trtllm_prompt_cached_tokens_total"),
    Series("preemptions", Kind.COUNTER, "events", caveat="a gauge of paused requests is exported instead"),
    _counter("spec_drafted", "tokens", "trtllm_spec_decode_num_draft_tokens_total"),
    _counter("spec_accepted", "tokens", "trtllm_spec_decode_num_accepted_tokens_total"),
    _counter("ttft_sum", "s", "trtllm_time_to_first_token_seconds_sum"),
    _counter("ttft_count", "requests", "trtllm_time_to_first_token_seconds_count"),
    _counter("queue_time_sum", "s", "trtllm_request_queue_time_seconds_sum"),
    _counter("queue_time_count", "requests", "trtllm_request_queue_time_seconds_count"),
)
LLAMACPP = (
    _gauge("requests_running", "requests", "llamacpp:requests_processing"),
    _gauge("requests_waiting", "requests", "llamacpp:requests_deferred", caveat="waiting for a free slot"),
    Series("kv_usage", Kind.GAUGE, "ratio", caveat="removed in 2025"),
    _counter("prompt_tokens", "tokens", "llamacpp:prompt_tokens_total", caveat="without cached tokens"),
    _counter("generation_tokens", "tokens", "llamacpp:tokens_predicted_total"),
    Series("prefix_cache_queries", Kind.COUNTER, "tokens"),
    _counter("prefix_cache_hits", "tokens", "llamacpp:prompt_tokens_cached_total"),
    Series("preemptions", Kind.COUNTER, "events"),
    _counter("spec_drafted", "tokens", "llamacpp:spec_decode_num_draft_tokens_total"),
    _counter("spec_accepted", "tokens", "llamacpp:spec_decode_num_accepted_tokens_total"),
    _counter("prefill_time_sum", "s", "llamacpp:prompt_seconds_total"),
    _counter("decode_time_sum", "s", "llamacpp:tokens_predicted_seconds_total"),
    Series("ttft_sum", Kind.COUNTER, "s"),
    Series("queue_time_sum", Kind.COUNTER, "s"),
)
TGI = (
    _gauge("requests_running", "requests", "tgi_batch_current_size", caveat="batch size, the closest it has"),
    _gauge("requests_waiting", "requests", "tgi_queue_size"),
    Series("kv_usage", Kind.GAUGE, "ratio"),
    _counter("prompt_tokens", "tokens", "tgi_request_input_length_sum"),
    _counter("generation_tokens", "tokens", "tgi_request_generated_tokens_sum"),
    Series("prefix_cache_hits", Kind.COUNTER, "tokens"),
    Series("preemptions", Kind.COUNTER, "events"),
    Series("ttft_sum", Kind.COUNTER, "s", caveat="has none"),
)
# NVIDIA's DCGM exporter. SM_ACTIVE and the other profiling fields are off in its default list of counters.
GPU = (
    _gauge(
        "gpu_sm_active",
        "ratio",
        "DCGM_FI_PROF_SM_ACTIVE",
        over=Over.MAX,
        caveat="commented out in dcgm-exporter's default counters",
    ),
    _gauge("gpu_tensor_active", "ratio", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", over=Over.MAX),
    _gauge("gpu_dram_active", "ratio", "DCGM_FI_PROF_DRAM_ACTIVE", over=Over.MAX),
    _gauge(
        "gpu_util",
        "percent",
        "DCGM_FI_DEV_GPU_UTIL",
        over=Over.MAX,
        caveat="a kernel was resident: saturates, never enough alone",
    ),
)
GPU_PREFIX = "DCGM_FI_"

SERIES: dict[str, tuple[Series, ...]] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "trtllm": TRTLLM,
    "llamacpp": LLAMACPP,
    "tgi": TGI,
    "fake": VLLM,  # the fake engine exports vLLM's names
}
PREFIXES = {
    "vllm:": "vllm",
    "sglang:": "sglang",
    "sglang_": "sglang",
    "trtllm_": "trtllm",
    "llamacpp:": "llamacpp",
    "tgi_": "tgi",
}
PATHS = {"trtllm": "/prometheus/metrics"}
NEEDS_FLAG = {"sglang": "--enable-metrics", "llamacpp": "--metrics"}
