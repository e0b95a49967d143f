"""Start-up logs back to memory terms."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.specs import stored

from setpoint.errors import UsageError
from setpoint.sizing.calibrate import calibrate
from setpoint.sizing.deployment import Deployment
from setpoint.sizing.plan import plan_memory

GIB = 2**30

V0 = """\
INFO 12-02 10:00:00 api_server.py:585] vLLM API server version 0.6.4.post1
INFO 12-02 model_runner.py:1071] Loading model weights took 14.9888 GB
INFO 12-02 worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB \
peak_torch_memory=17.06GiB memory_usage_post_profile=15.35GiB non_torch_memory=0.35GiB kv_cache_size=3.81GiB \
gpu_memory_utilization=0.90
INFO 12-02 gpu_executor.py:113] # GPU blocks: 1952, # CPU blocks: 2048
INFO 12-02 gpu_executor.py:117] Maximum concurrency for 20000 tokens per request: 1.56x
"""
V1 = """\
(EngineCore pid=187) INFO [core.py:109] Initializing a V1 LLM engine (v0.20.0) with config: model='m', \
tensor_parallel_size=1, pipeline_parallel_size=1
non-default args: {'gpu_memory_utilization': 0.9, 'max_model_len': 65536}
(EngineCore pid=187) INFO [gpu_model_runner.py:4879] Model loading took 21.86 GiB memory and 33.868409 seconds
(EngineCore pid=187) INFO [gpu_model_runner.py:6042] Estimated CUDA graph memory: 0.36 GiB total
(EngineCore pid=187) INFO [gpu_worker.py:440] Available KV cache memory: 2.95 GiB
(EngineCore pid=187) INFO [kv_cache_utils.py:1711] GPU KV cache size: 75,456 tokens
(EngineCore pid=187) INFO [kv_cache_utils.py:1716] Maximum concurrency for 65,536 tokens per request: 3.87x
"""
USAGE = """\
INFO vLLM version 0.22.0
INFO Available KV cache memory: 26.32 GiB
INFO Free memory on device (43.90/44.40 GiB) on startup. Desired GPU memory utilization is (0.95, 42.18 GiB). Actual \
usage is 14.29 GiB for weight, 1.05 GiB for peak activation, 0.15 GiB for non-torch memory, and 0.37 GiB for CUDAGraph \
memory.
"""
SGLANG = """\
[TP0] server_args=ServerArgs(model_path='Qwen/QwQ-32B', tp_size=4, mem_fraction_static=0.85)
[TP0] Load weight begin. avail mem=21.63 GB
[TP0] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=6.09 GB, mem usage=15.54 GB.
[TP0] KV Cache is allocated. #tokens: 46611, K size: 1.42 GB, V size: 1.42 GB
[TP0] Memory pool end. avail mem=2.09 GB
[TP0] Capture cuda graph end. Time elapsed: 5.2 s. mem usage=0.93 GB. avail mem=1.10 GB
[TP0] max_total_num_tokens=46611, chunked_prefill_size=2048, max_running_requests=2049, context_len=131072
"""


def terms(log: str) -> dict[str, float]:
    return {term.name: round(term.size.expected / GIB, 2) for term in calibrate(log).terms}


def test_the_first_engine_core_states_every_term() -> None:
    found = calibrate(V0)
    assert terms(V0) == {"weights": 14.99, "activations": 2.07, "non_torch": 0.35}
    assert (found.printed_tokens, found.max_model_len) == (1952 * 16, 20000)
    assert found.device_bytes == pytest.approx(23.58 * GIB)


def test_later_versions_state_their_usage_in_one_sentence() -> None:
    found = terms(USAGE)
    assert (found["weights"], found["activations"]) == (14.29, 1.05)


def test_without_the_device_memory_only_stated_terms_are_solved() -> None:
    found = calibrate(V1)
    assert {term.name for term in found.terms} == {"weights", "graphs"}
    assert "cannot be solved" in found.notes[0]
    assert (found.printed_tokens, found.max_model_len, found.tp) == (75456, 65536, 1)


def test_activations_follow_from_budget_weights_and_cache() -> None:
    log = V1 + "Free memory on device (31.4/31.84 GiB) on startup\n"
    assert terms(log)["activations"] == pytest.approx(0.9 * 31.84 - 21.86 - 2.95 - 0.36, abs=0.01)


def test_sglang_gb_are_gib_and_its_pool_follows_from_what_loading_left() -> None:
    found = calibrate(SGLANG)
    assert found.kv_bytes == pytest.approx(2.84 * GIB)
    assert (found.printed_tokens, found.tp, found.utilization) == (46611, 4, 0.85)
    assert terms(SGLANG) == {"weights": 15.54, "graphs": 0.93, "non_torch": 1.16}
    assert "does not print its version" in found.notes[0]


def test_a_plan_from_a_log_gives_the_cache_of_that_log_back() -> None:
    found = calibrate(V0)
    assert found.device_bytes is not None
    assert found.utilization is not None
    deployment = Deployment(found.engine, 20000, utilization=found.utilization, kv_dtype="bfloat16")
    plan = plan_memory(stored("meta-llama--Meta-Llama-3.1-8B"), deployment, found.device_bytes, calibration=found)
    assert plan.kv.expected / GIB == pytest.approx(3.81, abs=0.01)
    assert {term.origin for term in plan.terms} == {"logged"}


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("hello", "no start-up log"),
        (V1.replace("(v0.20.0)", ""), "does not state which version"),
        (V1.replace("0.20.0", "9.9.9"), "are not known"),
        (V1.replace("Model loading took", "Model took"), "states no weights"),
        (SGLANG.replace("Load weight end", "Loaded"), "no 'Load weight end' line"),
    ],
)
def test_what_cannot_be_solved_is_said_in_one_message(log: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        calibrate(log)


@given(st.text(max_size=400), st.sampled_from([V0, V1, SGLANG, USAGE]))
def test_any_text_is_a_calibration_or_one_error(noise: str, log: str) -> None:
    with suppress(UsageError):
        calibrate(noise + log[: len(noise) * 3])
