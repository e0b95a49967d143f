"""Decoders that mix full attention with windows or chunks by a pattern of their class: Gemma, Llama 4, Cohere 2."""

from dataclasses import replace

from setpoint.models.families.body import Body, attention, experts, heads_of, layer_types, mtp_count
from setpoint.models.families.decoder import SOFTMAX
from setpoint.models.fields import Fields
from setpoint.models.layer import Attention, Dense, Experts, FeedForward, Layer, Scope
from setpoint.models.weights import Component


def _pattern(c: Fields, count: int, every: int) -> list[str]:
    """``layer_types``, or ``every``-th layer full, or by a word such as ``LLLG`` (L: window, G: full)."""
    word = c.values.get("sliding_window_pattern")
    if isinstance(word, str):
        c.has("sliding_window_pattern")
        if not word or not set(word) <= {"L", "G"}:
            raise c.wrong("sliding_window_pattern", "a number, or letters L and G")
        found = ["full_attention" if letter == "G" else "sliding_attention" for letter in word]
        return layer_types(c, count, SOFTMAX) or [found[index % len(found)] for index in range(count)]
    step = c.integer("sliding_window_pattern", "_sliding_window_pattern", default=every)
    return layer_types(c, count, SOFTMAX) or [
        "full_attention" if (index + 1) % step == 0 else "sliding_attention" for index in range(count)
    ]


def _interleaved(c: Fields, every: int, *, tied: bool, qk_norm: bool = False) -> Body:
    count = c.layers()
    part = Dense(c.integer("intermediate_size"))
    window = c.integer("sliding_window")
    full = attention(c, qk_norm=qk_norm)
    near = replace(full, scope=Scope.SLIDING, window=window)
    kinds = _pattern(c, count, every)
    return Body(tuple(Layer(full if kind == "full_attention" else near, part) for kind in kinds), tied=tied)


def gemma2(c: Fields) -> Body:
    """Gemma 2: every second layer full."""
    return _interleaved(c, 2, tied=True)


def every_fourth(c: Fields) -> Body:
    """OLMo 3 and EXAONE 4: every fourth layer full."""
    return _interleaved(c, 4, tied=False, qk_norm=True)


def cohere2(c: Fields) -> Body:
    """Command R7B and A: every fourth layer full."""
    return _interleaved(c, 4, tied=True)


def gemma3(c: Fields) -> Body:
    """Gemma 3: every sixth layer full. Its checkpoints leave out what equals the class default."""
    count = c.layers()
    heads, kv_heads = c.integer("num_attention_heads", default=8), c.integer("num_key_value_heads", default=4)
    if heads % kv_heads:
        raise c.wrong("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
    width = c.integer("head_dim", default=256)
    full = Attention(heads, kv_heads, width, width, qk_norm=True)
    near = replace(full, scope=Scope.SLIDING, window=c.integer("sliding_window", default=4096))
    part = Dense(c.integer("intermediate_size"))
    kinds = _pattern(c, count, 6)
    return Body(tuple(Layer(full if kind == "full_attention" else near, part) for kind in kinds), tied=True)


def gemma4(c: Fields) -> Body:
    """Gemma 4: global layers with their own heads, late layers that reuse earlier keys, experts beside a dense part."""
    count = c.layers()
    heads, kv_heads, width = heads_of(c)
    kinds = _pattern(c, count, 6)
    global_width = c.integer("global_head_dim", default=width)
    from_keys = c.flag("attention_k_eq_v")
    global_heads = c.integer("num_global_key_value_heads", default=kv_heads)
    full = Attention(heads, global_heads, global_width, global_width, values_from_keys=from_keys, qk_norm=True)
    near = Attention(heads, kv_heads, width, width, Scope.SLIDING, c.integer("sliding_window"), qk_norm=True)
    shared = c.integer("num_kv_shared_layers", default=0, least=0)
    if shared >= count:
        raise c.wrong("num_kv_shared_layers", f"less than the number of layers ({count})")
    dense_width = c.integer("intermediate_size")
    double = c.flag("use_double_wide_mlp")
    has_experts = c.flag("enable_moe_block")
    layers = []
    last: dict[str, int] = {}
    for index, kind in enumerate(kinds):
        mixer = full if kind == "full_attention" else near
        late = index >= count - shared
        if late:
            if kind not in last:
                raise c.wrong("num_kv_shared_layers", f"an earlier {kind} layer to share with")
            mixer = replace(mixer, shares_kv_with=last[kind])
        else:
            last[kind] = index
        part: FeedForward = Dense(dense_width * (2 if late and double else 1))
        if has_experts:
            part = replace(experts(c), dense_width=dense_width)
        layers.append(Layer(mixer, part))
    return Body(tuple(layers), extra=_per_layer_embedding(c, count), tied=True)


def _per_layer_embedding(c: Fields, count: int) -> tuple[tuple[Component, int], ...]:
    """Gemma 3n and 4 small models: one small embedding per layer, its projection, and two gates a layer."""
    width = c.integer("hidden_size_per_layer_input", default=0, least=0)
    if not width:
        return ()
    hidden, vocabulary = c.integer("hidden_size"), c.integer("vocab_size_per_layer_input")
    table = vocabulary * count * width
    return ((Component.EMBEDDING, table + hidden * count * width), (Component.MLP, 2 * hidden * width * count))


def llama4(c: Fields) -> Body:
    """Llama 4: chunks of ``attention_chunk_size``, every fourth layer full, experts every so many layers."""
    count = c.layers()
    full = attention(c, qk_norm=False)
    c.has("use_qk_norm")
    chunk = c.integer("attention_chunk_size", default=0, least=0)
    near = replace(full, scope=Scope.CHUNKED, window=chunk) if chunk else full
    marks = c.whole("no_rope_layers") or [int((index + 1) % 4 != 0) for index in range(count)]
    if len(marks) != count:
        raise c.wrong("no_rope_layers", f"{count} items, one per layer")
    step = c.integer("interleave_moe_layer_step", default=1)
    sparse = set(c.whole("moe_layers") or range(step - 1, count, step))
    width = c.integer("intermediate_size")
    routed, active = c.integer("num_local_experts"), c.integer("num_experts_per_tok")
    if active > routed:
        raise c.wrong("num_experts_per_tok", f"at most num_local_experts ({routed})")
    part = Experts(routed, active, width, shared_width=width)
    dense = Dense(c.integer("intermediate_size_mlp"))
    layers = tuple(
        Layer(near if mark else full, part if index in sparse else dense) for index, mark in enumerate(marks)
    )
    return Body(layers)


def step3(c: Fields) -> Body:
    """Step 3.7: ``layer_types`` names windows; the first layers are dense."""
    count = c.layers()
    kinds = _pattern(c, count, 4)
    full = attention(c)
    near = replace(full, scope=Scope.SLIDING, window=c.integer("sliding_window"))
    first = c.integer("first_k_dense_replace", default=0, least=0)
    dense, part = Dense(c.integer("intermediate_size")), experts(c)
    layers = tuple(
        Layer(full if kind == "full_attention" else near, dense if index < first else part)
        for index, kind in enumerate(kinds)
    )
    return Body(layers, (Layer(near, dense),) * mtp_count(c))
