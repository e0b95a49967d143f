"""SGLang's pools: one of tokens for full attention, one for windows, one of slots for recurrent states."""

import math
from dataclasses import dataclass, replace

from setpoint.models.layer import Attention, Layer, Recurrent, Scope
from setpoint.models.spec import ModelSpec
from setpoint.sizing.deployment import Deployment, drafting, has_states, stages
from setpoint.sizing.kept import kv_dtype_of, state_bytes, token_bytes


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of one replica.

    Attributes:
        tokens: Tokens of the full-attention pool: ``max_total_num_tokens``.
        window_tokens: Tokens of the window pool; 0 when there is none.
        state_slots: Sequences whose states are kept; 0 when there are none.
        token_bytes: Bytes of one token in the full-attention pool of a rank.
        window_token_bytes: Likewise in the window pool.
        state_bytes: Bytes of one slot.
    """

    tokens: int
    window_tokens: int
    state_slots: int
    token_bytes: float
    window_token_bytes: float
    state_bytes: int


def pools_of(spec: ModelSpec, deployment: Deployment, kv_bytes: float, state_pool_bytes: float | None = None) -> Pools:
    """The pools that memory gives.

    SGLang keeps keys and values for every attention layer, also for those that read an earlier layer's (0.5.13 logs).
    Windows get ``window_share`` tokens for each token of the full pool.

    Args:
        spec: The model.
        deployment: How it is run.
        kv_bytes: Bytes of a rank for keys and values, states not included.
        state_pool_bytes: Bytes for states; None: ``state_share`` of ``kv_bytes`` beside it.
    """
    dtype = kv_dtype_of(spec, deployment)
    full = near = 0.0
    state = 0
    for stage in stages(spec, deployment):
        members = [spec.layers[index] for index in stage]
        if stage.stop == len(spec.layers):
            members += drafting(spec, deployment)
        sizes = [(_window(layer), token_bytes(_owning(layer), dtype, deployment.tp)) for layer in members]
        full = max(full, sum(size for window, size in sizes if not window))
        near = max(near, sum(size for window, size in sizes if window))
        slots = (state_bytes(layer.mixer, spec, deployment) for layer in members if isinstance(layer.mixer, Recurrent))
        state = max(state, sum(slots))
    if near and not full:
        full, near = near, 0.0
    share = deployment.window_share if near else 0.0
    size = full + share * near
    page = deployment.block_tokens or 1
    tokens = math.floor(kv_bytes / size) // page * page * deployment.dcp if size else 0
    slots_bytes = state_pool_bytes if state_pool_bytes is not None else kv_bytes * deployment.state_share
    return Pools(
        tokens,
        int(tokens * share) // page * page,
        math.floor(slots_bytes / state) if has_states(spec) else 0,
        full,
        near,
        state,
    )


def _window(layer: Layer) -> bool:
    return isinstance(layer.mixer, Attention) and layer.mixer.scope is not Scope.FULL


def _owning(layer: Layer) -> Layer:
    if isinstance(layer.mixer, Attention) and layer.mixer.shares_kv_with is not None:
        return replace(layer, mixer=replace(layer.mixer, shares_kv_with=None))
    return layer
