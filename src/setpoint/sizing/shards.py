"""Weights of one rank under tensor, pipeline, expert and data parallelism."""

from setpoint.models.spec import ModelSpec, Stored
from setpoint.models.weights import Component, Split
from setpoint.sizing.deployment import Deployment, check_split, drafting, kv_heads_of_rank, stages

MXFP4_WIDTH = 256
"""vLLM pads the intermediate size of MXFP4 experts to multiples of this on a rank (logs of gpt-oss-120b: 64.38 GiB)."""


def rank_share(stored: Stored, deployment: Deployment) -> float:
    """The part of some weights that one rank holds.

    Attention and dense parts are sliced over the tensor-parallel ranks and copied for each data-parallel one; KV
    projections are copied where ranks outnumber heads; experts are sliced, or with expert parallelism dealt out whole,
    over both kinds of ranks.
    """
    tp, wide = deployment.tp, deployment.tp * deployment.dp
    match stored.split:
        case Split.REPLICATED:
            return 1.0
        case Split.KV_HEADS:
            return kv_heads_of_rank(stored.kv_heads, tp) / stored.kv_heads
        case Split.EXPERTS if deployment.expert_parallel:
            return -(-stored.copies // wide) / stored.copies
        case Split.EXPERTS:
            return 1 / wide
        case _:
            return 1 / tp


def _padding(stored: Stored, deployment: Deployment) -> float:
    if stored.split is not Split.EXPERTS or stored.format.name != "mxfp4" or deployment.engine.name != "vllm":
        return 1.0
    width = stored.width if deployment.expert_parallel else stored.width / (deployment.tp * deployment.dp)
    return -(-width // MXFP4_WIDTH) * MXFP4_WIDTH / width


def stage_weight_bytes(spec: ModelSpec, deployment: Deployment) -> list[float]:
    """Bytes of weights on a rank of each pipeline stage.

    The embedding and the encoders are on the first stage, the head and drafting layers on the last; a tied embedding
    is on both.

    Raises:
        UsageError: heads or layers cannot be split so.
    """
    check_split(spec, deployment.tp)
    parts = stages(spec, deployment)
    total = [0.0] * len(parts)
    stage_of = {index: number for number, part in enumerate(parts) for index in part}
    for one in spec.stored:
        size = one.size * rank_share(one, deployment) * _padding(one, deployment)
        if one.layer >= 0:
            total[stage_of[one.layer]] += size
        elif one.component in (Component.LM_HEAD, Component.NORM):
            total[-1] += size
        else:
            total[0] += size
            if one.component is Component.EMBEDDING and spec.tied and len(parts) > 1:
                total[-1] += size
    plain = spec.precision.unquantized.bytes_per_weight
    total[0] += sum(tower.parameters for tower in spec.towers) * plain / deployment.tp
    last = len(spec.layers) + len(drafting(spec, deployment))
    total[-1] += sum(one.size * rank_share(one, deployment) for one in spec.mtp_stored if one.layer < last)
    return total
