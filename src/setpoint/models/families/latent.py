"""Decoders with latent attention: DeepSeek V2 to V4, Kimi K2, GLM-5, MiniCPM 3; and MiniMax M3's indexed attention."""

from dataclasses import replace

from setpoint.models.families.body import Body, attention, experts, layer_types, mtp_count, sparse_layers
from setpoint.models.fields import Fields
from setpoint.models.layer import CompressedAttention, Dense, Experts, Indexer, LatentAttention, Layer


def latent_attention(c: Fields) -> LatentAttention:
    """MLA from the usual fields, with DeepSeek Sparse Attention where ``index_head_dim`` is stated.

    Raises:
        ModelSpecError: ``qk_head_dim`` contradicts its parts.
    """
    heads = c.integer("num_attention_heads")
    query_rank = c.integer("q_lora_rank") if c.has("q_lora_rank") else None
    rope, nope = c.integer("qk_rope_head_dim"), c.integer("qk_nope_head_dim")
    if c.has("qk_head_dim") and c.integer("qk_head_dim") != rope + nope:
        raise c.wrong("qk_head_dim", f"qk_nope_head_dim + qk_rope_head_dim ({nope + rope})")
    indexer = None
    if c.has("index_head_dim"):
        if query_rank is None:
            raise c.wrong("q_lora_rank", "a whole number, as the indexer's queries are projected from it")
        top_k = c.integer("index_topk", default=0)
        indexer = Indexer(c.integer("index_n_heads"), c.integer("index_head_dim"), top_k, query_rank)
    # The class states these for other attention kinds; with a latent they say nothing.
    c.has("num_key_value_heads", "head_dim")
    return LatentAttention(
        heads,
        c.integer("kv_lora_rank"),
        rope,
        nope,
        c.integer("v_head_dim"),
        query_rank,
        output_gate=c.flag("mla_use_output_gate"),
        indexer=indexer,
    )


def deepseek(c: Fields) -> Body:
    """DeepSeek V2 to V3.2, Kimi K2, GLM-5: MLA; the first layers dense, then experts."""
    count = c.layers()
    mixer = latent_attention(c)
    mixers = _with_indexers(c, mixer, count)
    if not c.has("n_routed_experts", "num_experts"):
        dense = Dense(c.integer("intermediate_size"))
        return Body(tuple(Layer(one, dense) for one in mixers))
    part = experts(c)
    sparse = sparse_layers(c, count)
    dense = Dense(c.integer("intermediate_size"))
    layers = tuple(Layer(one, part if is_sparse else dense) for one, is_sparse in zip(mixers, sparse, strict=True))
    return Body(layers, (replace(layers[-1], mixer=mixer),) * mtp_count(c))


def _with_indexers(c: Fields, mixer: LatentAttention, count: int) -> list[LatentAttention]:
    """GLM-5.2 chooses positions once for several layers: ``indexer_types`` says which layers have an indexer."""
    layer_types(c, count, ("deepseek_sparse_attention",))
    kinds = c.items("indexer_types")
    if kinds is None:
        return [mixer] * count
    if len(kinds) != count or not set(kinds) <= {"full", "shared"}:
        raise c.wrong("indexer_types", f"{count} items, each full or shared")
    return [mixer if kind == "full" else replace(mixer, indexer=None) for kind in kinds]


def deepseek_v4(c: Fields) -> Body:
    """DeepSeek V4: a window and compressed latents; ``compress_ratios`` states the ratio of each layer.

    A ratio of 4 comes with an indexer, 128 without one, 0 is the window alone. The list is longer than the decoder
    by its MTP layers.
    """
    count, mtp = c.layers(), mtp_count(c)
    ratios = c.whole("compress_ratios")
    if ratios is None or len(ratios) not in (count, count + mtp):
        raise c.wrong("compress_ratios", f"{count + mtp} items, one per layer")
    for ratio in ratios:
        if ratio not in (0, 4, 128):
            raise c.wrong("compress_ratios", "only 0, 4 and 128")
    if c.integer("num_key_value_heads", default=1) != 1:
        raise c.wrong("num_key_value_heads", "1: the latent is shared by all heads")
    heads, width = c.integer("num_attention_heads"), c.integer("head_dim")
    groups = c.integer("o_groups")
    if heads * width % groups:
        raise c.wrong("o_groups", f"a divisor of num_attention_heads * head_dim ({heads * width})")
    query_rank = c.integer("q_lora_rank")
    indexer = Indexer(
        c.integer("index_n_heads"), c.integer("index_head_dim"), c.integer("index_topk", default=0), query_rank
    )
    plain = CompressedAttention(
        heads,
        width,
        c.integer("qk_rope_head_dim"),
        c.integer("sliding_window"),
        0,
        query_rank,
        c.integer("o_lora_rank"),
        groups,
    )
    part = experts(c)
    c.has("num_hash_layers", "compress_rope_theta")
    padded = ratios + [0] * (count + mtp - len(ratios))
    layers = tuple(
        Layer(replace(plain, ratio=ratio, indexer=indexer if ratio == 4 else None), part, "self_attn", "mlp")
        for ratio in padded
    )
    return Body(layers[:count], layers[count:])


def minimax_m3(c: Fields) -> Body:
    """MiniMax M3: grouped-query attention, most layers with an indexer over blocks of positions."""
    count = c.layers()
    plain = attention(c, qk_norm=c.flag("use_qk_norm"))
    notes: tuple[str, ...] = ()
    indexed = [False] * count
    indexer = None
    sparse = c.inner("sparse_attention_config")
    if sparse is not None and sparse.flag("use_sparse_attention", default=True):
        marks = sparse.whole("sparse_attention_freq") or [1] * count
        if len(marks) != count:
            raise sparse.wrong("sparse_attention_freq", f"{count} items, one per layer")
        indexed = [bool(mark) for mark in marks]
        top_k = sparse.integer("sparse_topk_blocks", default=0) * sparse.integer("sparse_block_size", default=1)
        heads, width = sparse.integer("sparse_num_index_heads"), sparse.integer("sparse_index_dim")
        indexer = Indexer(heads, width, top_k, c.integer("hidden_size"))
        notes = ("The indexer is taken to keep one key of sparse_index_dim per position, as DeepSeek's does.",)
    dense, part = Dense(c.integer("dense_intermediate_size")), _m3_experts(c)
    layers = tuple(
        Layer(replace(plain, indexer=indexer if mark else None), part if is_sparse else dense)
        for mark, is_sparse in zip(indexed, sparse_layers(c, count), strict=True)
    )
    return Body(layers, layers[-1:] * mtp_count(c), notes=notes)


def _m3_experts(c: Fields) -> Experts:
    part = experts(c)
    return replace(part, shared_gate=False)
