"""From layers to matrices: every weight of a model with its shape, its component, and how it may be split.

Shapes follow the public modelling code of each mixer; norms and other vectors are counted because they are cheap to
count, router corrections and attention sinks are not (below 1e-5 of any model).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from setpoint.models.layer import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    Indexer,
    LatentAttention,
    Layer,
    Mixer,
    Recurrent,
    StateKind,
)


class Component(StrEnum):
    """What a weight belongs to."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    INDEXER = "indexer"
    STATE = "state"
    MLP = "mlp"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    NORM = "norm"
    LM_HEAD = "lm_head"
    VISION = "vision"
    AUDIO = "audio"
    MTP = "mtp"


class Split(StrEnum):
    """How tensor parallelism treats a weight."""

    SHARDED = "sharded"
    KV_HEADS = "kv_heads"
    EXPERTS = "experts"
    REPLICATED = "replicated"
    VOCABULARY = "vocabulary"


@dataclass(frozen=True, slots=True)
class Weight:
    """One matrix, or ``copies`` equal ones.

    Attributes:
        name: Module name from ``layers.`` on (or the whole name outside the layers).
        component: What it belongs to.
        layer: Index of the decoder layer; -1 outside the decoder.
        rows: Output width.
        columns: Input width.
        copies: Equal matrices (experts).
        active: How many of the copies one token goes through.
        split: What tensor parallelism does with it.
        linear: May be quantized.
        kv_heads: Heads in ``rows`` where ``split`` is ``kv_heads``; 0 otherwise.
    """

    name: str
    component: Component
    layer: int
    rows: int
    columns: int
    copies: int = 1
    active: float = 1
    split: Split = Split.SHARDED
    linear: bool = True
    kv_heads: int = 0

    @property
    def parameters(self) -> int:
        """All copies."""
        return self.rows * self.columns * self.copies

    @property
    def active_parameters(self) -> float:
        """Those that one token is multiplied with."""
        return self.rows * self.columns * self.active


def layer_weights(layer: Layer, prefix: str, index: int, hidden: int) -> Iterator[Weight]:
    """Every weight of one layer.

    Args:
        layer: The layer.
        prefix: Its name, ``layers.3`` or ``mtp.0``.
        index: Its index; MTP layers continue behind the decoder's.
        hidden: Hidden size of the model.
    """
    if layer.mixer is not None:
        yield from _mixer(layer.mixer, f"{prefix}.{layer.mixer_name}", index, hidden)
        yield _norm(f"{prefix}.input_layernorm", index, hidden)
    if layer.feed_forward is not None:
        name = f"{prefix}.{layer.feed_forward_name}"
        if isinstance(layer.feed_forward, Dense):
            yield from _dense(
                name, Component.MLP, index, hidden, layer.feed_forward.width, gated=layer.feed_forward.gated
            )
        else:
            yield from _experts(layer.feed_forward, name, index, hidden)
        yield _norm(f"{prefix}.post_attention_layernorm", index, hidden)


def _norm(name: str, index: int, width: int) -> Weight:
    return Weight(name, Component.NORM, index, width, 1, split=Split.REPLICATED, linear=False)


def _mixer(mixer: Mixer, name: str, index: int, hidden: int) -> Iterator[Weight]:
    match mixer:
        case Attention():
            yield from _attention(mixer, name, index, hidden)
        case LatentAttention():
            yield from _latent(mixer, name, index, hidden)
        case CompressedAttention():
            yield from _compressed(mixer, name, index, hidden)
        case Recurrent():
            yield from _recurrent(mixer, name, index, hidden)


def _attention(a: Attention, name: str, index: int, hidden: int) -> Iterator[Weight]:
    part = Component.ATTENTION
    query = a.heads * a.head_dim * (2 if a.output_gate else 1)
    yield Weight(f"{name}.q_proj", part, index, query, hidden)
    if a.shares_kv_with is None:
        for word, width in (("k", a.head_dim), ("v", a.v_head_dim)):
            if word == "v" and a.values_from_keys:
                continue
            yield Weight(
                f"{name}.{word}_proj",
                part,
                index,
                a.kv_heads * width,
                hidden,
                split=Split.KV_HEADS,
                kv_heads=a.kv_heads,
            )
    yield Weight(f"{name}.o_proj", part, index, hidden, a.heads * a.v_head_dim)
    if a.biased:
        yield Weight(f"{name}.bias", part, index, query + a.kept_per_token, 1, linear=False)
    if a.qk_norm:
        yield _norm(f"{name}.qk_norm", index, 2 * a.head_dim)
    if a.indexer is not None:
        yield from _indexer(a.indexer, f"{name}.indexer", index, hidden)


def _indexer(indexer: Indexer, name: str, index: int, hidden: int) -> Iterator[Weight]:
    part, split = Component.INDEXER, Split.REPLICATED
    yield Weight(f"{name}.wq_b", part, index, indexer.heads * indexer.head_dim, indexer.query_rank, split=split)
    yield Weight(f"{name}.wk", part, index, indexer.head_dim, hidden, split=split)
    yield Weight(f"{name}.weights_proj", part, index, indexer.heads, hidden, split=split, linear=False)


def _latent(a: LatentAttention, name: str, index: int, hidden: int) -> Iterator[Weight]:
    part = Component.ATTENTION
    query = a.heads * (a.nope_dim + a.rope_dim)
    if a.query_rank is None:
        yield Weight(f"{name}.q_proj", part, index, query, hidden)
    else:
        yield Weight(f"{name}.q_a_proj", part, index, a.query_rank, hidden, split=Split.REPLICATED)
        yield Weight(f"{name}.q_b_proj", part, index, query, a.query_rank)
        yield _norm(f"{name}.q_a_layernorm", index, a.query_rank)
    yield Weight(f"{name}.kv_a_proj_with_mqa", part, index, a.kept_per_token, hidden, split=Split.REPLICATED)
    yield Weight(f"{name}.kv_b_proj", part, index, a.heads * (a.nope_dim + a.v_head_dim), a.kv_rank)
    yield _norm(f"{name}.kv_a_layernorm", index, a.kv_rank)
    yield Weight(f"{name}.o_proj", part, index, hidden, a.heads * a.v_head_dim)
    if a.output_gate:
        yield Weight(f"{name}.g_proj", part, index, a.heads * a.v_head_dim, hidden)
    if a.indexer is not None:
        yield from _indexer(a.indexer, f"{name}.indexer", index, hidden)


def _compressed(a: CompressedAttention, name: str, index: int, hidden: int) -> Iterator[Weight]:
    part, whole = Component.ATTENTION, Split.REPLICATED
    yield Weight(f"{name}.wq_a", part, index, a.query_rank, hidden, split=whole)
    yield Weight(f"{name}.wq_b", part, index, a.heads * a.head_dim, a.query_rank)
    yield Weight(f"{name}.wkv", part, index, a.head_dim, hidden, split=whole)
    group = a.heads * a.head_dim // a.output_groups
    yield Weight(f"{name}.wo_a", part, index, a.output_groups * a.output_rank, group)
    yield Weight(f"{name}.wo_b", part, index, hidden, a.output_groups * a.output_rank)
    if a.ratio:
        overlap = 2 if a.indexer is not None else 1
        yield Weight(f"{name}.compressor", part, index, 2 * overlap * a.head_dim, hidden, split=whole, linear=False)
    if a.indexer is not None:
        i = a.indexer
        part = Component.INDEXER
        yield Weight(f"{name}.indexer.wq_b", part, index, i.heads * i.head_dim, i.query_rank, split=whole)
        yield Weight(f"{name}.indexer.weights_proj", part, index, i.heads, hidden, split=whole, linear=False)
        yield Weight(f"{name}.indexer.compressor", part, index, 4 * i.head_dim, hidden, split=whole, linear=False)


def _recurrent(r: Recurrent, name: str, index: int, hidden: int) -> Iterator[Weight]:
    part = Component.STATE
    key = r.groups * r.key_dim
    match r.kind:
        case StateKind.MAMBA2:
            rows = {"in_proj": 2 * r.inner + 2 * key + r.heads}
        case StateKind.MAMBA1:
            rows = {"in_proj": 2 * r.inner}
            yield Weight(f"{name}.x_proj", part, index, r.step_rank + 2 * r.key_dim, r.inner)
            yield Weight(f"{name}.dt_proj", part, index, r.inner, r.step_rank)
        case StateKind.GDN:
            rows = {"in_proj_qkv": 2 * key + r.inner, "in_proj_z": r.inner, "in_proj_ba": 2 * r.heads}
        case StateKind.KDA:
            rows = {"q_proj": r.heads * r.key_dim, "k_proj": r.heads * r.key_dim, "v_proj": r.inner, "b_proj": r.heads}
            rows["f_a_proj"] = r.value_dim
            yield Weight(f"{name}.f_b_proj", part, index, r.inner, r.value_dim)
            if r.low_rank_gate:
                rows["g_a_proj"] = r.low_rank_gate
                yield Weight(f"{name}.g_b_proj", part, index, r.inner, r.low_rank_gate)
            else:
                rows["g_proj"] = r.inner
        case StateKind.LIGHTNING:
            rows = {"qkv_proj": 3 * r.inner, "output_gate": r.inner}
        case StateKind.SHORT_CONV:
            rows = {"in_proj": 3 * r.inner}
    for word, count in rows.items():
        # Two numbers a head decide nothing about memory and are kept in high precision by every known recipe.
        yield Weight(f"{name}.{word}", part, index, count, hidden, linear=word not in ("in_proj_ba", "b_proj"))
    yield Weight(f"{name}.out_proj", part, index, hidden, r.inner)
    if r.conv_channels:
        yield Weight(f"{name}.conv1d", part, index, r.conv_channels, r.conv_kernel, linear=False)
    yield _norm(f"{name}.norm", index, r.value_dim if r.kind is not StateKind.MAMBA2 else r.inner)


def _dense(
    name: str, part: Component, index: int, hidden: int, width: int, copies: int = 1, active: float = 1, *, gated: bool
) -> Iterator[Weight]:
    split = Split.EXPERTS if part is Component.EXPERTS else Split.SHARDED
    for word in ("gate_proj", "up_proj") if gated else ("up_proj",):
        yield Weight(f"{name}.{word}", part, index, width, hidden, copies, active, split)
    yield Weight(f"{name}.down_proj", part, index, hidden, width, copies, active, split)


def _experts(e: Experts, name: str, index: int, hidden: int) -> Iterator[Weight]:
    inner = e.latent or hidden
    # With a dense part beside them, the experts are siblings of it in the checkpoint, not its children (Gemma 4).
    outer = name.rpartition(".")[0] if e.dense_width else name
    yield Weight(f"{outer}.gate", Component.ROUTER, index, e.routed, hidden, split=Split.REPLICATED, linear=False)
    yield from _dense(f"{outer}.experts.0", Component.EXPERTS, index, inner, e.width, e.routed, e.active, gated=e.gated)
    if e.latent:
        part = Component.SHARED_EXPERTS
        yield Weight(f"{name}.fc1_latent_proj", part, index, e.latent, hidden, split=Split.REPLICATED)
        yield Weight(f"{name}.fc2_latent_proj", part, index, hidden, e.latent, split=Split.REPLICATED)
    if e.shared_width:
        yield from _dense(
            f"{name}.shared_experts", Component.SHARED_EXPERTS, index, hidden, e.shared_width, gated=e.gated
        )
    if e.shared_gate:
        yield Weight(f"{name}.shared_expert_gate", Component.ROUTER, index, 1, hidden, linear=False)
    if e.dense_width:
        yield from _dense(name, Component.MLP, index, hidden, e.dense_width, gated=e.gated)
