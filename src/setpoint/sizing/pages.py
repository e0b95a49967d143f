"""vLLM's pages: what one block of one layer holds and how many bytes that takes, as the engine lays it out."""

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from setpoint.errors import UsageError
from setpoint.models.layer import Attention, CompressedAttention, LatentAttention, Layer, Recurrent, Scope
from setpoint.models.spec import ModelSpec
from setpoint.sizing.deployment import Deployment, drafting, has_states, is_latent, kv_heads_of_rank
from setpoint.sizing.engine import Engine
from setpoint.sizing.kept import (
    ELEMENT_BYTES,
    compressed_bytes,
    indexer_bytes,
    kv_dtype_of,
    latent_bytes,
    state_bytes,
)


class PageKind(StrEnum):
    """What decides how many pages a request needs."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    STATE = "state"
    COMPRESSED = "compressed"
    NEAR = "near"


@dataclass(frozen=True, slots=True)
class Page:
    """One block of one layer. Layers with equal pages may share a block table.

    Attributes:
        kind: What decides how many a request needs.
        tokens: Tokens that it holds; for a state the length after which the next one is cached.
        size: Bytes.
        window: Window or chunk; 0 otherwise.
        shape: What else tells layers apart (heads and widths).
    """

    kind: PageKind
    tokens: int
    size: int
    window: int = 0
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerPage:
    """The page of one layer, or of one of its parts.

    Attributes:
        layer: Index of the layer; MTP layers continue behind the decoder's.
        page: Its page.
    """

    layer: int
    page: Page


def default_block(spec: ModelSpec, deployment: Deployment) -> int:
    """Tokens per block before any alignment: 16; 64 for MLA kernels (0.9 on); 256 for DeepSeek V4."""
    if deployment.block_tokens is not None:
        return deployment.block_tokens
    if any(isinstance(layer.mixer, CompressedAttention) for layer in spec.layers):
        return 256
    return 64 if is_latent(spec) and deployment.engine.version >= (0, 9) else 16


def prefix_caching(spec: ModelSpec, deployment: Deployment) -> bool:
    """Whether prefix caching is on: as asked, else by default, which for recurrent models depends on the version."""
    if deployment.prefix_caching is not None:
        return deployment.prefix_caching
    return deployment.engine.caches_states if has_states(spec) else not deployment.engine.is_v0


def layer_pages(spec: ModelSpec, deployment: Deployment) -> list[LayerPage]:
    """Every layer's pages on one rank, all pages of equal size where the engine needs that.

    Raises:
        UsageError: the pages of the layers cannot be brought to one size.
    """
    dtype = kv_dtype_of(spec, deployment)
    block = default_block(spec, deployment)
    layers = [*enumerate(spec.layers)]
    drafts = drafting(spec, deployment)
    layers += [(len(spec.layers) + number, layer) for number, layer in enumerate(drafts)]
    if has_states(spec):
        return _with_states(spec, deployment, layers, dtype, block)
    found = [LayerPage(index, page) for index, layer in layers for page in _pages(layer, deployment, dtype, block)]
    chunked = any(one.page.kind is PageKind.CHUNKED for one in found)
    grouped = deployment.hybrid_manager
    if grouped is None:
        grouped = not chunked or deployment.engine.groups_chunks
    whole = not grouped or not deployment.engine.groups_layers
    if whole and any(one.page.kind is PageKind.FULL for one in found):
        found = [LayerPage(one.layer, replace(one.page, kind=PageKind.FULL, window=0)) for one in found]
    return found


def _pages(layer: Layer, deployment: Deployment, dtype: str, block: int) -> list[Page]:
    match layer.mixer:
        case Attention() as mixer if mixer.shares_kv_with is None:
            heads = kv_heads_of_rank(mixer.kv_heads, deployment.tp)
            size = _exact(block * heads * (mixer.head_dim + mixer.v_head_dim), dtype)
            kind = {
                Scope.FULL: PageKind.FULL,
                Scope.SLIDING: PageKind.SLIDING,
                Scope.CHUNKED: PageKind.CHUNKED,
            }[mixer.scope]
            pages = [Page(kind, block, size, mixer.window, (heads, mixer.head_dim, mixer.v_head_dim))]
            if mixer.indexer is not None:
                pages.append(Page(PageKind.FULL, block, block * indexer_bytes(mixer.indexer)))
            return pages
        case LatentAttention() as mixer:
            pages = [Page(PageKind.FULL, block, round(block * latent_bytes(mixer, dtype)))]
            if mixer.indexer is not None:
                pages.append(Page(PageKind.FULL, block, block * indexer_bytes(mixer.indexer)))
            return pages
        case CompressedAttention() as mixer:
            return _compressed(mixer, dtype, block)
        case _:
            return []


def _exact(elements: int, dtype: str) -> int:
    return int(Fraction(ELEMENT_BYTES[dtype]) * elements)


def _compressed(mixer: CompressedAttention, dtype: str, block: int) -> list[Page]:
    """DeepSeek V4 (vLLM 0.27 source): window, compressed latents, indexer keys and FP32 compressor states.

    Pages are rounded up to 576 bytes. The window has blocks of 64 tokens; the compressor of ratio 4 keeps 8 positions
    in blocks of 4, that of ratio 128 keeps 128 in blocks of 8, two vectors each, doubled where blocks overlap.
    """
    one = compressed_bytes(mixer, dtype)
    pages = [Page(PageKind.NEAR, 64, _aligned(64 * one), mixer.window)]
    if mixer.ratio:
        pages.append(Page(PageKind.COMPRESSED, block, _aligned(block / mixer.ratio * one)))
        overlap = 2 if mixer.indexer is not None else 1
        short = 4 if mixer.indexer is not None else 8
        near = overlap * mixer.ratio
        pages.append(Page(PageKind.NEAR, short, _aligned(short * 8 * overlap * mixer.head_dim), near))
        if mixer.indexer is not None:
            key = mixer.indexer
            pages.append(Page(PageKind.COMPRESSED, block, _aligned(block / mixer.ratio * indexer_bytes(key))))
            pages.append(Page(PageKind.NEAR, short, _aligned(short * 8 * overlap * key.head_dim), near))
    return pages


def _aligned(size: float) -> int:
    return -(-round(size) // 576) * 576


def _with_states(
    spec: ModelSpec, deployment: Deployment, layers: list[tuple[int, Layer]], dtype: str, block: int
) -> list[LayerPage]:
    """Recurrent hybrids: attention blocks grow until one holds a state, and the state is padded to it.

    The block is rounded up to a multiple of 16 tokens, 64 for MLA kernels (``HybridAttentionMambaModelConfig``).
    Without prefix caching a sequence has one state, whatever its length.
    """
    states = {
        index: state_bytes(layer.mixer, spec, deployment)
        for index, layer in layers
        if isinstance(layer.mixer, Recurrent)
    }
    per_token = max(
        (
            Fraction(page.size, page.tokens)
            for _, layer in layers
            for page in _pages(layer, deployment, dtype, block)[:1]
        ),
        default=Fraction(0),
    )
    largest = max(states.values())
    if not per_token:
        return [
            LayerPage(index, Page(PageKind.STATE, deployment.max_model_len, size)) for index, size in states.items()
        ]
    step = deployment.block_step or (64 if is_latent(spec) else 16)
    grown = max(block, -(-Fraction(largest) // (per_token * step)) * step)
    padded = int(per_token * grown)
    every = grown if prefix_caching(spec, deployment) else deployment.max_model_len
    found = []
    for index, layer in layers:
        if index in states:
            found.append(LayerPage(index, Page(PageKind.STATE, every, padded)))
        else:
            found.extend(LayerPage(index, page) for page in _pages(layer, deployment, dtype, grown))
    return found


def of_one_size(pages: list[LayerPage], engine: Engine) -> list[LayerPage]:
    """Pages brought to the largest size: more tokens in a smaller page, or padding where that does not divide.

    Raises:
        UsageError: the sizes do not divide and the version cannot pad (before 0.20; version assumed).
    """
    largest = max(one.page.size for one in pages)
    found = []
    for one in pages:
        page = one.page
        if page.size == largest:
            found.append(one)
        elif page.kind is PageKind.STATE:
            found.append(LayerPage(one.layer, replace(page, size=largest)))
        elif largest % page.size == 0:
            tokens = page.tokens * (largest // page.size)
            found.append(LayerPage(one.layer, replace(page, size=largest, tokens=tokens)))
        elif engine.version >= (0, 20):
            found.append(LayerPage(one.layer, replace(page, size=largest)))
        else:
            raise UsageError(
                f"{engine.label} cannot serve this model: a page of {page.size} bytes does not "
                f"divide one of {largest}.",
                fix="Use version 0.20 or later.",
            )
    return found
