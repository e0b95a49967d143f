"""Memory beside weights and cache: activations, CUDA graphs, NCCL and other allocations outside PyTorch.

Nobody publishes these; the figures below are solved from start-up logs (``tests/sizing`` holds them to those logs),
and each has a range that covers the logs. ``calibrate`` replaces them by those of one's own stack.
"""

from setpoint.models.layer import Attention, CompressedAttention, Dense, Experts, LatentAttention, Layer, Recurrent
from setpoint.models.spec import ModelSpec
from setpoint.sizing.deployment import Deployment
from setpoint.sizing.kept import ELEMENT_BYTES
from setpoint.sizing.term import Range, Term

GIB = 2**30
LARGE_DEVICE = 70 * GIB
"""vLLM's defaults for batch sizes change above this (``EngineArgs``)."""


def batched_tokens(deployment: Deployment, device_bytes: float) -> int:
    """``max_num_batched_tokens`` (SGLang: ``chunked_prefill_size``): as set, else the engine's default.

    vLLM V1: 8192 on devices of 70 GiB and more, 2048 below; V0: the whole context, but 2048 above 32k, where chunked
    prefill is on. SGLang: 2048 below 35 GB, 4096 below 60 GB, 8192 below 160 GB, then 16384.
    """
    if deployment.max_num_batched_tokens is not None:
        return deployment.max_num_batched_tokens
    if deployment.engine.name == "sglang":
        sizes = ((35, 2048), (60, 4096), (160, 8192))
        return next((tokens for limit, tokens in sizes if device_bytes < limit * 1e9), 16384)
    if deployment.engine.is_v0:
        return max(2048, deployment.max_model_len) if deployment.max_model_len <= 32768 else 2048
    return 8192 if device_bytes >= LARGE_DEVICE else 2048


def sequences(deployment: Deployment, device_bytes: float) -> int:
    """``max_num_seqs``: as set, else vLLM V1's 1024 on devices of 70 GiB and more, 256 otherwise."""
    if deployment.max_num_seqs is not None:
        return deployment.max_num_seqs
    if deployment.engine.name == "vllm" and not deployment.engine.is_v0 and device_bytes >= LARGE_DEVICE:
        return 1024
    return 256


def activations(spec: ModelSpec, deployment: Deployment, device_bytes: float) -> Term:
    """The peak of one profiled step: the larger of the forward pass and the sampling step.

    Forward: every batched token holds three hidden vectors and the widest intermediate result of any layer. Sampling:
    logits, probabilities and the copies that top-k and top-p make. Models with an encoder profile it too; the only log
    (Qwen2.5-VL-72B) has 2.5 GiB, which sets their upper bound.
    """
    tokens, width = batched_tokens(deployment, device_bytes), ELEMENT_BYTES[spec.activation_dtype]
    widest = max(_intermediate(layer, deployment.tp, spec.hidden) for layer in spec.layers)
    forward = tokens * (3 * spec.hidden + widest) * width
    rows = min(sequences(deployment, device_bytes), tokens)
    low, expected, high = (rows * spec.vocabulary * entry for entry in deployment.engine.sampler_bytes)
    top = max(high, 2 * forward, 2.6 * GIB if spec.towers else 0.0)
    size = Range(max(0.6 * forward, low), max(forward, expected), max(top, forward, expected))
    part = "forward pass" if forward > expected else "sampling step"
    return Term("activations", size, "computed", f"peak of the {part} with {tokens} tokens and {rows} sequences")


def _intermediate(layer: Layer, tp: int, hidden: int) -> float:
    """Elements per token of the widest intermediate result of a layer, on a rank."""
    match layer.mixer:
        case Attention() as a:
            mixed = (2 * a.heads * a.head_dim + a.kept_per_token) / tp
        case LatentAttention() as m:
            mixed = m.heads * (m.nope_dim + m.rope_dim + m.v_head_dim) * 2 / tp
        case CompressedAttention() as v:
            mixed = 2 * v.heads * v.head_dim / tp
        case Recurrent() as r:
            mixed = (4 * r.inner + r.conv_channels) / tp
        case None:
            mixed = 0.0
    match layer.feed_forward:
        case Dense() as d:
            return max(mixed, 3 * d.width / tp)
        case Experts() as e:
            inside = e.active * (3 * e.width / tp + (e.latent or hidden))
            return max(mixed, inside + 3 * (e.shared_width + e.dense_width) / tp)
        case None:
            return mixed


def non_torch(deployment: Deployment) -> Term:
    """NCCL buffers, cuBLAS workspaces and what else is allocated outside PyTorch.

    Logs: 0.05 to 0.35 GiB on one rank (10 of them), 0.25 to 0.55 on two, 0.21 to 0.43 on four.
    """
    if deployment.tp * deployment.pp * deployment.dp == 1:
        return Term("non_torch", _gib(0.05, 0.14, 0.4), "assumed", "a range seen in start-up logs; not all are cited")
    wide = deployment.expert_parallel or deployment.tp * deployment.dp > 8
    high = 3.0 if wide else 1.0
    return Term("non_torch", _gib(0.15, 0.45, high), "assumed", "a range seen in start-up logs; not all are cited")


def graphs(deployment: Deployment) -> Term:
    """CUDA graphs.

    Logs: 0.1 to 1.44 GiB up to 0.19 (and 3.45 on four ranks over PCIe), 0.09 to 0.73 later, 0.79 to 1.44 for SGLang.
    """
    if not deployment.graphs:
        return Term("graphs", _gib(0, 0, 0), "computed", "CUDA graphs are off")
    if deployment.engine.name == "sglang":
        return Term("graphs", _gib(0.5, 1.1, 2.0), "assumed", "a range seen in start-up logs; not all are cited")
    if deployment.engine.charges_graphs:
        return Term("graphs", _gib(0.05, 0.3, 1.0), "assumed", "a range seen in start-up logs; not all are cited")
    high = 1.6 if deployment.tp == 1 else 4.0
    return Term("graphs", _gib(0.0, 0.7, high), "assumed", "a range seen in start-up logs; not all are cited")


def context(deployment: Deployment) -> Term:
    """The driver's context of the process itself, which SGLang does not see as available."""
    count = "one L4 log: 0.42 GiB" if deployment.engine.name == "sglang" else "part of the device outside the budget"
    return Term("context", _gib(0.3, 0.5, 1.0), "assumed", count)


def fragmentation(device_bytes: float) -> Term:
    """What days of running add outside the pool: allocator fragmentation, lazily loaded kernels, grown workspaces."""
    size = Range(0.0, 0.01 * device_bytes, 0.03 * device_bytes)
    return Term("fragmentation", size, "assumed", "1% of the device, up to 3%: no log of days of running was found")


def _gib(low: float, expected: float, high: float) -> Range:
    return Range(low, expected, high).map(GIB)
