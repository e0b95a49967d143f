"""Decoders of attention and a dense or sparse feed-forward part: Llama, Mistral, Qwen, Phi, Granite and more."""

from setpoint.models.families.body import (
    Body,
    attention,
    experts,
    heads_of,
    layer_types,
    mtp_count,
    sparse_layers,
)
from setpoint.models.fields import Fields
from setpoint.models.layer import Attention, Dense, Experts, Layer, Scope

SOFTMAX = ("full_attention", "sliding_attention", "chunked_attention", "attention")


def windows(c: Fields, count: int) -> list[int]:
    """The window of each layer; 0 for full attention.

    ``layer_types`` decides; without it ``use_sliding_window`` and ``max_window_layers`` (Qwen 2 and 3), else a
    ``sliding_window`` holds for all layers (Mistral, Phi 3). A window of the whole context is none.
    """
    window = c.integer("sliding_window", default=0, least=0)
    longest = c.integer("max_position_embeddings", "max_seq_len", "seq_length", default=0)
    first = c.integer("max_window_layers", default=0, least=0)
    types = layer_types(c, count, SOFTMAX)
    if types is not None:
        if "sliding_attention" in types and not window:
            raise c.wrong("sliding_window", "a whole number, as layer_types has sliding_attention")
        return [window if kind == "sliding_attention" else 0 for kind in types]
    if not window or (longest and window >= longest) or not c.flag("use_sliding_window", default=True):
        return [0] * count
    return [window if index >= first else 0 for index in range(count)]


def decoder(c: Fields, *, gated: bool = True, qk_norm: bool = False, tied: bool = False) -> Body:
    """A dense decoder."""
    count = c.layers()
    width = c.integer("intermediate_size", "ffn_hidden_size", "n_inner")
    layers = tuple(_softmax(c, window, Dense(width, gated), qk_norm=qk_norm) for window in windows(c, count))
    return Body(layers, layers[-1:] * mtp_count(c), tied=tied)


def _softmax(c: Fields, window: int, part: Dense | Experts, *, qk_norm: bool = False) -> Layer:
    return Layer(attention(c, window, Scope.SLIDING if window else Scope.FULL, qk_norm=qk_norm), part)


def qwen(c: Fields) -> Body:
    """Qwen 3, and what else normalizes queries and keys."""
    return decoder(c, qk_norm=True)


def tied_decoder(c: Fields) -> Body:
    """Decoders whose class ties embeddings by default (Cohere)."""
    return decoder(c, tied=True)


def plain(c: Fields) -> Body:
    """Two matrices in the feed-forward part (StarCoder 2, GPT-NeoX)."""
    return decoder(c, gated=False)


def mixture(c: Fields) -> Body:
    """A sparse decoder, some of whose layers may be dense."""
    count = c.layers()
    qk_norm = c.flag("use_qk_norm", default=c.values.get("model_type", "").startswith("qwen3"))
    part = experts(c)
    sparse = sparse_layers(c, count)
    dense = None if all(sparse) else Dense(c.integer("dense_intermediate_size", "intermediate_size"))
    layers = []
    for window, is_sparse in zip(windows(c, count), sparse, strict=True):
        layers.append(_softmax(c, window, part if is_sparse or dense is None else dense, qk_norm=qk_norm))
    c.has("intermediate_size")
    return Body(tuple(layers), tuple(layers[-1:]) * mtp_count(c))


def nemotron_nas(c: Fields) -> Body:
    """DeciLM and Nemotron NAS: each block states its own heads and width, or that a part is left out."""
    blocks = c.items("block_configs")
    count = c.layers()
    if blocks is None or len(blocks) != count:
        raise c.wrong("block_configs", f"{count} items, one per layer")
    heads, hidden = c.integer("num_attention_heads"), c.integer("hidden_size")
    layers = []
    for index, block in enumerate(blocks):
        b = Fields(block if isinstance(block, dict) else {}, f"{c.where}: block_configs[{index}]")
        a, f = b.inner("attention"), b.inner("ffn")
        if a is None or f is None:
            raise b.wrong("attention", "an object, and ffn beside it")
        layers.append(Layer(_nas_attention(a, heads, hidden), _nas_feed_forward(f, hidden)))
    return Body(tuple(layers))


def _nas_attention(a: Fields, heads: int, hidden: int) -> Attention | None:
    if a.flag("replace_with_linear"):
        raise a.wrong("replace_with_linear", "false: a linear layer instead of attention is not understood")
    if a.flag("no_op"):
        return None
    per_group = a.integer("n_heads_in_group")
    if heads % per_group:
        raise a.wrong("n_heads_in_group", f"a divisor of num_attention_heads ({heads})")
    window = a.integer("window_length", default=0)
    scope = Scope.SLIDING if window else Scope.FULL
    return Attention(heads, heads // per_group, hidden // heads, hidden // heads, scope, window)


def _nas_feed_forward(f: Fields, hidden: int) -> Dense | None:
    if f.flag("replace_with_linear"):
        raise f.wrong("replace_with_linear", "false: a linear layer instead of a feed-forward part is not understood")
    if f.flag("no_op"):
        return None
    # The modelling code rounds 2/3 of the multiple up to 256.
    return Dense(-(-int(2 * f.number("ffn_mult") * hidden / 3) // 256) * 256)


def mimo_v2(c: Fields) -> Body:
    """MiMo-V2: full layers and windows with their own heads and widths."""
    count = c.layers()
    pattern = c.whole("hybrid_layer_pattern")
    if pattern is None or len(pattern) != count:
        raise c.wrong("hybrid_layer_pattern", f"{count} items, one per layer")
    heads, kv_heads, width = heads_of(c)
    window = c.integer("sliding_window", "sliding_window_size")
    c.has("attention_chunk_size")
    full = Attention(heads, kv_heads, width, c.integer("v_head_dim", default=width))
    near = Attention(
        c.integer("swa_num_attention_heads", default=heads),
        c.integer("swa_num_key_value_heads", default=kv_heads),
        c.integer("swa_head_dim", default=width),
        c.integer("swa_v_head_dim", default=full.v_head_dim),
        Scope.SLIDING,
        window,
    )
    dense, part = Dense(c.integer("intermediate_size")), experts(c)
    marks = zip(pattern, sparse_layers(c, count), strict=True)
    layers = tuple(Layer(near if near_ else full, part if sparse else dense) for near_, sparse in marks)
    return Body(layers, layers[-1:] * mtp_count(c))
