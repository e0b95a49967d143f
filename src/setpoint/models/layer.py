"""What one decoder layer is made of: what it keeps per token or per sequence, and which matrices it multiplies.

A layer is a mixer (it moves information between positions) followed by a feed-forward part. Either may be absent:
Nemotron-H alternates layers that are only a mixer with layers that are only a feed-forward part.
All sizes are of the whole model; splitting over ranks is the business of ``setpoint.sizing``.
"""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """How far back an attention layer looks."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"


class StateKind(StrEnum):
    """Recurrent layers by their update rule."""

    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    GDN = "gated_delta_net"
    KDA = "kimi_delta_attention"
    LIGHTNING = "lightning"
    SHORT_CONV = "short_convolution"


@dataclass(frozen=True, slots=True)
class Indexer:
    """The small attention that chooses which positions a sparse layer reads (DeepSeek Sparse Attention and kin).

    Attributes:
        heads: Query heads.
        head_dim: Width of a query head and of the one key per position.
        top_k: Positions read per query (0: not stated).
        query_rank: Width that its queries are projected from.
    """

    heads: int
    head_dim: int
    top_k: int
    query_rank: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention that keeps keys and values per KV head.

    Attributes:
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a query and key head.
        v_head_dim: Width of a value head.
        scope: Full, sliding window, or chunks.
        window: Positions kept for ``sliding`` and ``chunked``; 0 for ``full``.
        shares_kv_with: Index of the earlier layer whose keys and values this one reads; None when it has its own.
        values_from_keys: Values come from the key projection (Gemma 4 global layers): one matrix fewer, same cache.
        output_gate: The query projection is twice as wide, the second half gates the output.
        biased: Projections have biases.
        qk_norm: Queries and keys are normalized with learnt weights.
        indexer: Sparse selection of what is read; everything is still kept.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    scope: Scope = Scope.FULL
    window: int = 0
    shares_kv_with: int | None = None
    values_from_keys: bool = False
    output_gate: bool = False
    biased: bool = False
    qk_norm: bool = False
    indexer: Indexer | None = None

    @property
    def kind(self) -> str:
        """``MHA``, ``GQA`` or ``MQA``."""
        if self.kv_heads == self.heads:
            return "MHA"
        return "MQA" if self.kv_heads == 1 else "GQA"

    @property
    def kept_per_token(self) -> int:
        """Elements kept per token over all KV heads, keys and values."""
        return self.kv_heads * (self.head_dim + self.v_head_dim)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed latent per token, the same for all heads.

    Attributes:
        heads: Query heads.
        kv_rank: Width of the latent (``kv_lora_rank``).
        rope_dim: Width of the shared positional key beside it.
        nope_dim: Width of the non-positional part of a query head.
        v_head_dim: Width of a value head after expansion.
        query_rank: ``q_lora_rank``; None when queries are projected directly.
        output_gate: A further projection gates the output.
        indexer: DeepSeek Sparse Attention; None for dense MLA.
    """

    heads: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    v_head_dim: int
    query_rank: int | None
    output_gate: bool = False
    indexer: Indexer | None = None

    @property
    def kind(self) -> str:
        """``MLA``, or ``MLA+indexer``."""
        return "MLA" if self.indexer is None else "MLA+indexer"

    @property
    def kept_per_token(self) -> int:
        """Elements of the latent kept per token (576 for DeepSeek V2 to V3.2), without the indexer's key."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """DeepSeek V4 attention: a sliding window of exact latents and one latent per ``ratio`` older positions.

    Attributes:
        heads: Query heads.
        head_dim: Width of the one key, which is also the value.
        rope_dim: Positional part of it.
        window: Positions kept exactly.
        ratio: Positions merged into one kept latent; 0 when the layer has the window only.
        query_rank: Low rank of the query projection.
        output_rank: Low rank of the grouped output projection.
        output_groups: Groups of the output projection.
        indexer: Chooses compressed positions; only where the ratio is small.
    """

    heads: int
    head_dim: int
    rope_dim: int
    window: int
    ratio: int
    query_rank: int
    output_rank: int
    output_groups: int
    indexer: Indexer | None = None

    @property
    def kind(self) -> str:
        """``window``, ``CSA`` (compressed, with indexer) or ``HCA`` (heavily compressed)."""
        if self.ratio == 0:
            return "window"
        return "HCA" if self.indexer is None else "CSA"


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer with a state of fixed size per sequence, whatever its length.

    Attributes:
        kind: Update rule.
        heads: Heads of the state.
        groups: Key heads (GDN), or groups that share B and C (Mamba 2).
        value_dim: Rows of one head's state.
        key_dim: Columns of one head's state.
        conv_channels: Channels of the short convolution; 0 when there is none.
        conv_kernel: Its length; ``conv_kernel - 1`` columns are kept.
        state_dtype: Element type of the state as the model asks for it; empty: same as the activations.
        low_rank_gate: Width of a low-rank output gate (KDA); 0 for a gate of full rank.
        step_rank: Mamba 1 rank of the step-size projection; 0 otherwise.
    """

    kind: StateKind
    heads: int
    groups: int
    value_dim: int
    key_dim: int
    conv_channels: int
    conv_kernel: int
    state_dtype: str = ""
    low_rank_gate: int = 0
    step_rank: int = 0

    @property
    def inner(self) -> int:
        """Width of the values: heads times value_dim."""
        return self.heads * self.value_dim

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state of one sequence."""
        return self.heads * self.value_dim * self.key_dim

    def conv_elements(self, speculative_tokens: int = 0) -> int:
        """Elements of the convolution's window of one sequence; drafts lengthen it by one column each."""
        if self.conv_channels == 0:
            return 0
        return self.conv_channels * (self.conv_kernel - 1 + speculative_tokens)


Mixer = Attention | LatentAttention | CompressedAttention | Recurrent


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense feed-forward part.

    Attributes:
        width: Intermediate size.
        gated: Three matrices (SwiGLU and kin) rather than two.
    """

    width: int
    gated: bool = True


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts.

    Attributes:
        routed: Experts to choose from.
        active: Experts chosen per token.
        width: Intermediate size of one routed expert.
        shared_width: Intermediate size of all shared experts together; 0 when there are none.
        latent: Width that tokens are projected to before the routed experts; 0: the hidden size itself.
        dense_width: Intermediate size of a dense part that runs beside the experts (Gemma 4); 0 when there is none.
        gated: Three matrices an expert rather than two.
        shared_gate: A learnt scalar gate on the shared experts.
    """

    routed: int
    active: int
    width: int
    shared_width: int = 0
    latent: int = 0
    dense_width: int = 0
    gated: bool = True
    shared_gate: bool = False


FeedForward = Dense | Experts


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        mixer: None when the layer is a feed-forward part alone.
        feed_forward: None when the layer is a mixer alone.
        mixer_name: Name of the mixer's module in the checkpoint, e.g. ``self_attn``; quantization rules match it.
        feed_forward_name: Likewise, e.g. ``mlp``.
    """

    mixer: Mixer | None
    feed_forward: FeedForward | None
    mixer_name: str = "self_attn"
    feed_forward_name: str = "mlp"
