"""From a model spec to the shape that latency is estimated from.

Kernels per layer are counted in the decode path of vLLM with CUDA graphs and the fusions it compiles by default: a
norm, the projections, rotary embedding with the cache write, attention, and their like; not fitted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from types import MappingProxyType

from setpoint.hardware import Precision
from setpoint.models.layer import Attention, CompressedAttention, Experts, LatentAttention, Layer, Mixer, Recurrent
from setpoint.models.precision import Format
from setpoint.models.spec import ModelSpec
from setpoint.models.weights import Component, Split, Weight
from setpoint.sizing.latency.shape import NOTHING, LayerKind, Matrices, Shape

_PRECISION: dict[str, Precision] = {
    "fp16": "fp16",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "int8": "int8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}
"""Precision of the operands by storage format; others (INT4 and NF4 are weight-only) are widened to BF16."""

_ATTENTION = frozenset({Component.ATTENTION, Component.INDEXER, Component.STATE})
_EVERY_TOKEN = frozenset({Component.MLP, Component.SHARED_EXPERTS, Component.ROUTER})
_STATE_BYTES = 4.0


def shape_of(spec: ModelSpec, *, cache_bytes: float = 2.0) -> Shape:
    """The shape of a model.

    Args:
        spec: The model.
        cache_bytes: Bytes of one element of the KV cache.
    """
    by_layer: defaultdict[int, list[Weight]] = defaultdict(list)
    for weight in spec.weights:
        by_layer[weight.layer].append(weight)
    kinds = Counter(_kind(spec, layer, by_layer[index]) for index, layer in enumerate(spec.layers))
    head = [w for w in by_layer[-1] if w.component is (Component.EMBEDDING if spec.tied else Component.LM_HEAD)]
    return Shape(
        name=spec.name,
        layers=tuple(_counted(parts, count) for parts, count in kinds.items()),
        hidden=spec.hidden,
        head=_thawed(_sum(spec, head)),
        cache_bytes=cache_bytes,
        draft_layers=len(spec.mtp_layers),
    )


_Frozen = tuple[float, tuple[tuple[Precision, float], ...]]
_Parts = tuple[Mixer | None, bool, _Frozen, _Frozen, _Frozen, _Frozen, int, int, bool]


def _kind(spec: ModelSpec, layer: Layer, weights: list[Weight]) -> _Parts:
    part = layer.feed_forward
    routed, active = (part.routed, part.active) if isinstance(part, Experts) else (0, 0)
    return (
        layer.mixer,
        part is not None,
        _sum(spec, (w for w in weights if w.component in _ATTENTION and w.split is not Split.REPLICATED)),
        _sum(spec, (w for w in weights if w.split is Split.REPLICATED and w.component is not Component.NORM)),
        _sum(spec, (w for w in weights if w.component in _EVERY_TOKEN and w.split is not Split.REPLICATED)),
        _sum(spec, (w for w in weights if w.component is Component.EXPERTS), one=True),
        routed,
        active,
        isinstance(part, Experts) and bool(part.shared_width or part.dense_width),
    )


def _sum(spec: ModelSpec, weights: Iterable[Weight], *, one: bool = False) -> _Frozen:
    """Bytes and parameters by precision; of one copy where asked."""
    size = 0.0
    parameters: defaultdict[Precision, float] = defaultdict(float)
    for weight in weights:
        kept = spec.format_of(weight)
        count = weight.parameters / (weight.copies if one else 1)
        size += count * kept.bytes_per_weight
        parameters[precision_of(kept)] += count
    return size, tuple(sorted(parameters.items()))


def precision_of(kept: Format) -> Precision:
    """Precision of the operands of a product with weights stored so."""
    return _PRECISION.get(kept.name, "bf16")


def _thawed(frozen: _Frozen) -> Matrices:
    return Matrices(frozen[0], MappingProxyType(dict(frozen[1]))) if frozen[1] else NOTHING


def _counted(parts: _Parts, count: int) -> LayerKind:
    mixer, fed, attention, replicated, dense, expert, routed, active, shared = parts
    fields = _mixed(mixer)
    kernels = int(fields.pop("kernels", 0))
    if fed:
        kernels += (6 + (3 if shared else 0)) if routed else 4
    window = fields.pop("window", 0.0)
    return LayerKind(
        count=count,
        attention=_thawed(attention),
        replicated=_thawed(replicated),
        dense=_thawed(dense),
        expert=_thawed(expert),
        experts=routed,
        experts_per_token=active,
        kernels=kernels,
        window=int(window) or None,
        cache_heads=int(fields.pop("cache_heads", 1)),
        **fields,
    )


def _mixed(mixer: Mixer | None) -> dict[str, float]:
    """Cache, operations and kernels of a mixer; operations count two per multiply-add."""
    found: dict[str, float]
    match mixer:
        case Attention():
            found = {
                # A layer that reads another's keys still reads them.
                "cache_elements": mixer.kept_per_token,
                "cache_heads": mixer.kv_heads,
                "decode_operations": 2 * mixer.heads * (mixer.head_dim + mixer.v_head_dim),
                "prefill_operations": 2 * mixer.heads * (mixer.head_dim + mixer.v_head_dim),
                "window": mixer.window,
                "kernels": 5 + mixer.qk_norm,
            }
            indexer = mixer.indexer
        case LatentAttention():
            # Decoding multiplies queries with the latent itself (absorbed); prefill expands it to heads.
            found = {
                "cache_elements": mixer.kept_per_token,
                "decode_operations": 2 * mixer.heads * (2 * mixer.kv_rank + mixer.rope_dim),
                "prefill_operations": 2 * mixer.heads * (mixer.nope_dim + mixer.rope_dim + mixer.v_head_dim),
                "kernels": 9,
            }
            indexer = mixer.indexer
        case CompressedAttention():
            # The window is exact; what lies behind it is read one latent for `ratio` tokens.
            found = {
                "cache_elements": mixer.head_dim / (mixer.ratio or 1),
                "decode_operations": 4 * mixer.heads * mixer.head_dim / (mixer.ratio or 1),
                "prefill_operations": 4 * mixer.heads * mixer.head_dim / (mixer.ratio or 1),
                "window": 0 if mixer.ratio else mixer.window,
                "kernels": 12,
            }
            indexer = mixer.indexer
        case Recurrent():
            return {"state_bytes": _STATE_BYTES * mixer.state_elements, "kernels": 9}
        case None:
            return {}
    if indexer is not None:
        ratio = mixer.ratio or 1 if isinstance(mixer, CompressedAttention) else 1
        found |= {
            "window": indexer.top_k * ratio,
            "scanned_elements": indexer.head_dim / ratio,
            "scanned_operations": 2 * indexer.heads * indexer.head_dim / ratio,
            "kernels": found["kernels"] + 7,
        }
    return found
