"""Decoders that mix attention with recurrent layers: Nemotron-H, Qwen 3.5, Granite 4, MiniMax-Text, Kimi Linear."""

from setpoint.models.families.body import Body, attention, experts, heads_of, layer_types, mtp_count, sparse_layers
from setpoint.models.families.latent import latent_attention
from setpoint.models.fields import MOST_LAYERS, Fields
from setpoint.models.layer import Attention, Dense, Experts, FeedForward, Layer, Mixer, Recurrent, StateKind

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_SYNONYMS = {"full_attention": "attention", "linear_attention": "mamba"}


def nemotron_h(c: Fields) -> Body:
    """Nemotron-H and 3: each layer is one part only, by ``hybrid_override_pattern`` or ``layers_block_type``."""
    blocks = _blocks(c, "hybrid_override_pattern", "layers_block_type")
    if blocks is None:
        raise c.wrong("hybrid_override_pattern", "one letter per layer, or layers_block_type")
    if c.has("num_hidden_layers") and c.layers() != len(blocks):
        raise c.wrong("num_hidden_layers", f"the length of the layer pattern ({len(blocks)})")
    parts = _nemotron_parts(c, set(blocks))
    layers = tuple(parts[block] for block in blocks)
    count = mtp_count(c)
    drafts: tuple[Layer, ...] = ()
    c.has("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if count:
        mtp = _blocks(c, "mtp_hybrid_override_pattern", "mtp_layers_block_type") or []
        more = _nemotron_parts(c, set(mtp))
        if len(mtp) * count > MOST_LAYERS:
            raise c.wrong("num_nextn_predict_layers", f"at most {MOST_LAYERS} layers of {len(mtp)} parts each")
        drafts = tuple(more[block] for block in mtp) * count
    return Body(layers, drafts)


def _blocks(c: Fields, letters: str, words: str) -> list[str] | None:
    listed = c.items(words)
    if listed is not None:
        found = [_SYNONYMS.get(item, item) if isinstance(item, str) else "" for item in listed]
        if not set(found) <= set(_LETTERS.values()):
            raise c.wrong(words, f"only {', '.join(_LETTERS.values())}")
        return found
    text = c.text(letters, default="")
    if not set(text) <= set(_LETTERS) or len(text) > MOST_LAYERS:
        raise c.wrong(letters, f"at most {MOST_LAYERS} letters, only {' '.join(_LETTERS)}")
    return [_LETTERS[letter] for letter in text] or None


def _nemotron_parts(c: Fields, kinds: set[str]) -> dict[str, Layer]:
    made: dict[str, Layer] = {}
    for kind in kinds:
        mixer: Mixer | None = None
        part: FeedForward | None = None
        if kind == "mamba":
            mixer = mamba2(c, "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
        elif kind == "attention":
            mixer = attention(c)
        elif kind == "mlp":
            part = Dense(c.integer("intermediate_size"), gated=False)
        else:
            found = experts(c)
            part = Experts(
                found.routed, found.active, found.width, found.shared_width, latent=found.latent, gated=False
            )
        made[kind] = Layer(mixer, part, "mixer", "mixer")
    return made


def mamba2(c: Fields, heads: str, width: str, groups: str, state: str, kernel: str) -> Recurrent:
    """A Mamba 2 layer; the arguments name the fields that hold each size."""
    count, value, shared, columns = c.integer(heads), c.integer(width), c.integer(groups), c.integer(state)
    return Recurrent(
        StateKind.MAMBA2,
        count,
        shared,
        value,
        columns,
        conv_channels=count * value + 2 * shared * columns,
        conv_kernel=c.integer(kernel),
        state_dtype=c.text("mamba_ssm_cache_dtype", default=""),
    )


def qwen3_next(c: Fields) -> Body:
    """Qwen 3 Next and 3.5: gated delta nets, every fourth layer gated attention."""
    count = c.layers()
    every = c.integer("full_attention_interval", default=4)
    kinds = layer_types(c, count, ("linear_attention", "full_attention")) or [
        "full_attention" if (index + 1) % every == 0 else "linear_attention" for index in range(count)
    ]
    heads, kv_heads, width = heads_of(c)
    full = Attention(heads, kv_heads, width, width, output_gate=c.flag("attn_output_gate", default=True), qk_norm=True)
    keys, values = c.integer("linear_num_key_heads"), c.integer("linear_num_value_heads")
    if values % keys:
        raise c.wrong("linear_num_value_heads", f"a multiple of linear_num_key_heads ({keys})")
    key_dim, value_dim = c.integer("linear_key_head_dim"), c.integer("linear_value_head_dim")
    net = Recurrent(
        StateKind.GDN,
        values,
        keys,
        value_dim,
        key_dim,
        conv_channels=2 * keys * key_dim + values * value_dim,
        conv_kernel=c.integer("linear_conv_kernel_dim"),
        state_dtype=c.text("mamba_ssm_dtype", default=""),
    )
    sparse = sparse_layers(c, count) if c.has("num_experts") else [False] * count
    part = experts(c) if any(sparse) else None
    dense = None if all(sparse) else Dense(c.integer("intermediate_size"))
    c.has("intermediate_size")
    layers = []
    for kind, is_sparse in zip(kinds, sparse, strict=True):
        feed: FeedForward | None = part if is_sparse else dense
        layers.append(Layer(full, feed) if kind == "full_attention" else Layer(net, feed, "linear_attn"))
    draft = Layer(full, layers[-1].feed_forward)
    return Body(tuple(layers), (draft,) * mtp_count(c))


def granite_hybrid(c: Fields) -> Body:
    """Granite 4 and Bamba: Mamba 2 with a few attention layers, experts or a dense part in each."""
    count = c.layers()
    kinds = layer_types(c, count, ("mamba", "attention", "linear_attention", "full_attention"))
    if kinds is None:
        raise c.wrong("layer_types", "one item per layer: which are mamba, which attention")
    net = mamba2(c, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    routed = c.integer("num_local_experts", default=0, least=0)
    part: FeedForward
    if routed:
        shared = c.integer("shared_intermediate_size", default=0, least=0)
        part = Experts(routed, c.integer("num_experts_per_tok"), c.integer("intermediate_size"), shared)
    else:
        part = Dense(c.integer("shared_intermediate_size", "intermediate_size"))
    full = attention(c)
    layers = tuple(
        Layer(full, part) if kind in ("attention", "full_attention") else Layer(net, part, "mamba") for kind in kinds
    )
    return Body(layers)


def bamba(c: Fields) -> Body:
    """Bamba: ``attn_layer_indices`` are attention, the rest Mamba 2."""
    count = c.layers()
    full_at = set(c.whole("attn_layer_indices") or ())
    net = mamba2(c, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    full, part = attention(c), Dense(c.integer("intermediate_size"))
    return Body(tuple(Layer(full, part) if i in full_at else Layer(net, part, "mamba") for i in range(count)))


def jamba(c: Fields) -> Body:
    """Jamba: Mamba 1, attention and experts each at their own period and offset."""
    count, hidden = c.layers(), c.integer("hidden_size")
    inner = c.integer("mamba_expand") * hidden
    net = Recurrent(
        StateKind.MAMBA1,
        1,
        1,
        inner,
        c.integer("mamba_d_state"),
        conv_channels=inner,
        conv_kernel=c.integer("mamba_d_conv"),
        step_rank=c.integer("mamba_dt_rank"),
    )
    full, width = attention(c), c.integer("intermediate_size")
    part = Experts(c.integer("num_experts"), c.integer("num_experts_per_tok"), width)
    at, off = c.integer("attn_layer_period"), c.integer("attn_layer_offset", least=0)
    sparse_at, sparse_off = c.integer("expert_layer_period"), c.integer("expert_layer_offset", least=0)
    layers = []
    for index in range(count):
        feed: FeedForward = part if index % sparse_at == sparse_off and part.routed > 1 else Dense(width)
        layers.append(Layer(full, feed) if index % at == off else Layer(net, feed, "mamba"))
    return Body(tuple(layers))


def minimax_text(c: Fields) -> Body:
    """MiniMax-Text-01 and M1: lightning attention with a full layer in between, experts everywhere."""
    count = c.layers()
    heads, kv_heads, width = heads_of(c)
    kinds = layer_types(c, count, ("linear_attention", "full_attention"))
    if kinds is None:
        marks = c.whole("attn_type_list")
        if marks is None or len(marks) != count:
            raise c.wrong("layer_types", f"{count} items, one per layer, or attn_type_list")
        kinds = ["full_attention" if mark else "linear_attention" for mark in marks]
    full = Attention(heads, kv_heads, width, width)
    net = Recurrent(StateKind.LIGHTNING, heads, heads, width, width, 0, 1, state_dtype="float32")
    part = Experts(
        c.integer("num_local_experts"),
        c.integer("num_experts_per_tok"),
        c.integer("intermediate_size"),
        c.integer("shared_intermediate_size", default=0, least=0),
    )
    return Body(tuple(Layer(full if kind == "full_attention" else net, part) for kind in kinds))


def kimi_linear(c: Fields) -> Body:
    """Kimi Linear and K3: Kimi delta attention, and MLA where ``linear_attn_config`` says (counted from 1)."""
    count = c.layers()
    config = c.inner("linear_attn_config")
    if config is None:
        raise c.wrong("linear_attn_config", "an object")
    full_at, net_at = set(config.whole("full_attn_layers") or ()), set(config.whole("kda_layers") or ())
    if full_at & net_at or full_at | net_at != set(range(1, count + 1)):
        raise config.wrong("full_attn_layers", f"together with kda_layers each layer from 1 to {count} once")
    heads, width = config.integer("num_heads"), config.integer("head_dim")
    net = Recurrent(
        StateKind.KDA,
        heads,
        heads,
        width,
        width,
        conv_channels=3 * heads * width,
        conv_kernel=config.integer("short_conv_kernel_size"),
        state_dtype="float32",
        low_rank_gate=0 if config.flag("use_full_rank_gate") else width,
    )
    mixer, part, dense = latent_attention(c), experts(c), Dense(c.integer("intermediate_size"))
    sparse = sparse_layers(c, count)
    layers = tuple(
        Layer(mixer if index + 1 in full_at else net, part if is_sparse else dense)
        for index, is_sparse in enumerate(sparse)
    )
    return Body(layers, layers[-1:] * mtp_count(c))


def lfm2(c: Fields) -> Body:
    """LFM2: short convolutions with a few attention layers; ``full_attn_idxs`` or ``layer_types`` says which."""
    count, hidden = c.layers(), c.integer("hidden_size")
    kinds = layer_types(c, count, ("conv", "full_attention"))
    full_at = set(c.whole("full_attn_idxs") or ())
    if kinds is None and not full_at:
        raise c.wrong("layer_types", f"{count} items, one per layer, or full_attn_idxs")
    width = c.integer("block_ff_dim", "intermediate_size")
    c.has("intermediate_size")
    if c.flag("block_auto_adjust_ff_dim", default=True):
        step = c.integer("block_multiple_of", default=256)
        width = -(-int(2 * width / 3) // step) * step
    net = Recurrent(StateKind.SHORT_CONV, 1, 1, hidden, 0, hidden, c.integer("conv_L_cache"))
    full, dense = attention(c, qk_norm=True), Dense(width)
    sparse = experts(c) if c.has("num_experts") else None
    first = c.integer("num_dense_layers", default=0 if sparse else count, least=0)
    layers = []
    for index in range(count):
        is_full = kinds[index] == "full_attention" if kinds is not None else index in full_at
        part: FeedForward = dense if sparse is None or index < first else sparse
        layers.append(Layer(full, part) if is_full else Layer(net, part, "conv"))
    return Body(tuple(layers), tied=True)
