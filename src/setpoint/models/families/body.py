"""What a family returns, and the parts that families share."""

from dataclasses import dataclass

from setpoint.models.fields import MOST_LAYERS, Fields
from setpoint.models.layer import Attention, Experts, Layer, Scope
from setpoint.models.weights import Component


@dataclass(frozen=True, slots=True)
class Body:
    """The decoder as a family reads it.

    Attributes:
        layers: Decoder layers.
        mtp_layers: Multi-token-prediction layers.
        extra: Parameters that no layer shows.
        notes: What was assumed.
        tied: What the family's class defaults to when the configuration does not say.
    """

    layers: tuple[Layer, ...]
    mtp_layers: tuple[Layer, ...] = ()
    extra: tuple[tuple[Component, int], ...] = ()
    notes: tuple[str, ...] = ()
    tied: bool = False


def heads_of(c: Fields, *, heads: int | None = None, kv_heads: int | None = None) -> tuple[int, int, int]:
    """Query heads, KV heads and head width.

    Args:
        c: The configuration.
        heads: The class default for query heads; None when it must be stated.
        kv_heads: The class default for KV heads; None: as many as query heads.

    Raises:
        ModelSpecError: the numbers contradict each other.
    """
    heads = c.integer("num_attention_heads", "n_head", default=heads)
    kv_heads = c.integer("num_key_value_heads", "num_kv_heads", default=kv_heads or heads)
    if kv_heads > heads or heads % kv_heads:
        raise c.wrong("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
    if c.has("head_dim", "attention_head_dim", "kv_channels"):
        width = c.integer("head_dim", "attention_head_dim", "kv_channels")
        if width > 4096:
            raise c.wrong("head_dim", "at most 4096")
        return heads, kv_heads, width
    hidden = c.integer("hidden_size")
    if hidden % heads:
        raise c.wrong("num_attention_heads", f"a divisor of hidden_size ({hidden}), as head_dim is not stated")
    return heads, kv_heads, hidden // heads


def attention(c: Fields, window: int = 0, scope: Scope = Scope.FULL, *, qk_norm: bool = False) -> Attention:
    """Plain attention from the usual fields."""
    heads, kv_heads, width = heads_of(c)
    return Attention(
        heads,
        kv_heads,
        width,
        width,
        scope,
        window,
        biased=c.flag("attention_bias", "qkv_bias"),
        qk_norm=qk_norm,
        output_gate=c.flag("attn_output_gate"),
    )


def layer_types(c: Fields, count: int, known: tuple[str, ...]) -> list[str] | None:
    """``layer_types``: as many as there are layers, each one known; None when it is not there.

    Raises:
        ModelSpecError: there are more or fewer, or one is unknown.
    """
    found = c.items("layer_types", "layers_block_type")
    if found is None:
        return None
    if len(found) != count:
        raise c.wrong("layer_types", f"{count} items, one per layer")
    for item in found:
        if item not in known:
            raise c.wrong("layer_types", f"only items among {', '.join(known)}")
    return found


def sparse_layers(c: Fields, count: int) -> list[bool]:
    """Which layers have experts: ``moe_layer_freq`` (a list or a step), ``first_k_dense_replace``, ``mlp_only_layers``.

    Raises:
        ModelSpecError: a list has another length than there are layers.
    """
    only_dense = set(c.whole("mlp_only_layers") or ())
    types = c.items("mlp_layer_types")
    if types is not None:
        if len(types) != count or not set(types) <= {"dense", "sparse"}:
            raise c.wrong("mlp_layer_types", f"{count} items, each dense or sparse")
        c.has("first_k_dense_replace", "moe_layer_freq")
        return [kind == "sparse" for kind in types]
    listed = c.values.get("moe_layer_freq")
    if isinstance(listed, list):
        marks = c.whole("moe_layer_freq") or []
        if len(marks) != count:
            raise c.wrong("moe_layer_freq", f"{count} items, one per layer")
        return [bool(mark) and index not in only_dense for index, mark in enumerate(marks)]
    first = c.integer("first_k_dense_replace", "moe_layer_start_index", default=0, least=0)
    every = c.integer("moe_layer_freq", "moe_layer_interval", default=1)
    step = c.integer("decoder_sparse_step", default=1)
    return [
        index >= first and index % every == 0 and (index + 1) % step == 0 and index not in only_dense
        for index in range(count)
    ]


_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")


def experts(c: Fields) -> Experts:
    """Experts from the usual fields.

    Raises:
        ModelSpecError: more experts are active than there are.
    """
    routed = c.integer("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
    active = c.integer(
        "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_k", "moe_topk"
    )
    if active > routed:
        raise c.wrong("num_experts_per_tok", f"at most the number of experts ({routed})")
    width = c.integer("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    shared_count = c.integer(*_SHARED, default=0, least=0)
    if c.has("moe_shared_expert_intermediate_size"):
        shared = shared_count * c.integer("moe_shared_expert_intermediate_size")
    elif c.has("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim"):
        names = ("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")
        shared = c.integer(*names, least=0) * max(shared_count, 1)
    else:
        shared = shared_count * width
    return Experts(
        routed,
        active,
        width,
        shared,
        latent=c.integer("moe_latent_size", "routed_expert_hidden_size", default=0),
        shared_gate=c.has("shared_expert_intermediate_size"),
    )


def mtp_count(c: Fields) -> int:
    """Multi-token-prediction layers that the configuration states, bounded as its layers are.

    Raises:
        ModelSpecError: more than any model has.
    """
    plain = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
    name, count = "num_mtp_modules", 0
    if c.has(*plain):
        name = next(field for field in plain if c.has(field))
        count = c.integer(name, least=0)
    elif c.has(name) and c.flag("use_mtp", default=True):
        count = c.integer(name, least=0) * c.integer("mtp_transformer_layers", default=1)
    if count > MOST_LAYERS:
        raise c.wrong(name, f"at most {MOST_LAYERS} layers")
    return count
