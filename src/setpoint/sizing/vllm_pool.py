"""vLLM's KV cache pool: groups of layers, blocks, and the two numbers that the engine prints about them.

Rules follow ``vllm/v1/core/kv_cache_utils.py`` and ``kv_cache_interface.py`` as of 0.10 to 0.27; the first engine core
(V0) divides the pool by the bytes of all layers.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from setpoint.models.spec import ModelSpec
from setpoint.sizing.deployment import Deployment, stages
from setpoint.sizing.pages import LayerPage, Page, PageKind, layer_pages, of_one_size, prefix_caching


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table.

    Attributes:
        page: The page of each of them; of the first one where their sizes differ.
        layers: Their indices.
        size: Bytes of one block over all of them, on a rank that has all of them.
    """

    page: Page
    layers: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool of one replica.

    Attributes:
        groups: Groups of layers.
        blocks: Blocks in the pool (of the smallest rank).
        block_bytes: Bytes of one block on the rank that needs most.
        block_tokens: Tokens per block, the fewest of all groups.
        request_blocks: Blocks of one request of ``max_model_len`` tokens.
        printed_tokens: "GPU KV cache size".
        printed_concurrency: "Maximum concurrency".
    """

    groups: tuple[Group, ...]
    blocks: int
    block_bytes: int
    block_tokens: int
    request_blocks: int
    printed_tokens: int
    printed_concurrency: float


def grouped(spec: ModelSpec, deployment: Deployment) -> tuple[Group, ...]:
    """Layers in groups, as the engine groups them.

    One group when all layers need the same number of tokens. Else layers with equal pages are dealt out to groups of
    one size: the fewest layers of a kind, or the most where the numbers are close.
    """
    pages = layer_pages(spec, deployment)
    if not pages:
        return ()
    if any(one.page.kind is PageKind.COMPRESSED for one in pages):
        return _compressed_groups(pages)
    # A page with the same reach, whatever its bytes, needs the same number of blocks.
    if len({(one.page.kind, one.page.tokens, one.page.window) for one in pages}) == 1:
        return (_group(pages),)
    kinds: dict[Page, list[LayerPage]] = {}
    for one in of_one_size(pages, deployment.engine):
        kinds.setdefault(one.page, []).append(one)
    counts = [len(members) for members in kinds.values()]
    size = min(counts)
    if max(counts) < size * deployment.engine.padding_ratio:
        size = max(counts)
    found: list[Group] = []
    for members in kinds.values():
        number = -(-len(members) // size)
        found.extend(_group(members[start::number]) for start in range(number))
    return tuple(found)


def _group(members: list[LayerPage]) -> Group:
    return Group(members[0].page, tuple(one.layer for one in members), sum(one.page.size for one in members))


def _compressed_groups(pages: list[LayerPage]) -> tuple[Group, ...]:
    """DeepSeek V4: compressed latents in one group, each kind of window dealt out to groups of a common size."""
    far = [one for one in pages if one.page.kind is PageKind.COMPRESSED]
    near: dict[tuple[int, int], list[LayerPage]] = {}
    for one in pages:
        if one.page.kind is PageKind.NEAR:
            near.setdefault((one.page.tokens, one.page.window), []).append(one)
    tuples = [_most_common(members) for members in (far, *near.values())]
    best = min(range(tuples[0], max(tuples) + 1), key=lambda size: (sum(-count % size for count in tuples), -size))
    found = [_group(far)]
    for members, count in zip(near.values(), tuples[1:], strict=True):
        number = -(-count // best)
        order = sorted({one.layer for one in members})
        for start in range(number):
            chosen = set(order[start::number])
            found.append(_group([one for one in members if one.layer in chosen]))
    return tuple(found)


def _most_common(members: list[LayerPage]) -> int:
    return Counter(one.page.size for one in members).most_common(1)[0][1]


def request_blocks(group: Group, tokens: int, spec: ModelSpec, deployment: Deployment, batch: int) -> int:
    """Blocks of one group that a request of ``tokens`` may need, with ``batch`` tokens being computed at once."""
    page = group.page
    match page.kind:
        case PageKind.FULL | PageKind.COMPRESSED:
            return -(-math.ceil(tokens / deployment.dcp) // page.tokens)
        case PageKind.SLIDING | PageKind.NEAR:
            return -(-min(page.window - 1 + batch, tokens) // page.tokens) + 1
        case PageKind.CHUNKED:
            return -(-min(page.window + batch, tokens) // page.tokens)
        case PageKind.STATE:
            return (2 if prefix_caching(spec, deployment) else 1) + deployment.speculative_tokens


def blocks_of_request(
    groups: tuple[Group, ...], tokens: int, spec: ModelSpec, deployment: Deployment, batch: int
) -> int:
    """Blocks of all groups; they come from one pool."""
    return sum(request_blocks(group, tokens, spec, deployment, batch) for group in groups)


def block_bytes(groups: tuple[Group, ...], spec: ModelSpec, deployment: Deployment) -> int:
    """Bytes of one block on the stage that needs most: its layers of the largest group."""
    last = len(spec.layers)
    found = []
    for stage in stages(spec, deployment):
        inside = range(stage.start, stage.stop if stage.stop < last else last + len(spec.mtp_layers))
        share = (_size_within(group, inside) for group in groups)
        found.append(max(share))
    return max(found)


def _size_within(group: Group, inside: range) -> int:
    if all(index in inside for index in group.layers):
        return group.size
    return group.page.size * sum(index in inside for index in group.layers)


@dataclass(frozen=True, slots=True)
class Layout:
    """What does not depend on how much memory there is.

    Attributes:
        groups: Groups of layers.
        block_bytes: Bytes of one block on the rank that needs most.
    """

    groups: tuple[Group, ...]
    block_bytes: int


def layout_of(spec: ModelSpec, deployment: Deployment) -> Layout:
    """The layout of a deployment, to be reused for many sizes of the pool."""
    groups = grouped(spec, deployment)
    return Layout(groups, block_bytes(groups, spec, deployment) if groups else 0)


def pool_of(spec: ModelSpec, deployment: Deployment, kv_bytes: float, batch: int, layout: Layout | None = None) -> Pool:
    """The pool that ``kv_bytes`` of each rank give.

    Args:
        spec: The model.
        deployment: How it is run.
        kv_bytes: "Available KV cache memory" of the smallest rank, in bytes.
        batch: ``max_num_batched_tokens``.
        layout: As :func:`layout_of` gives it, when it is at hand.
    """
    engine, longest = deployment.engine, deployment.max_model_len
    layout = layout or layout_of(spec, deployment)
    groups, size = layout.groups, layout.block_bytes
    if not groups:
        return Pool((), 1, 0, 0, 0, 0, math.inf)
    blocks = max(0, math.floor(kv_bytes / size))
    tokens_of_block = min(group.page.tokens for group in groups)
    needed = blocks_of_request(groups, longest, spec, deployment, batch * engine.in_flight_batches)
    tokens = blocks // len(groups) * tokens_of_block * deployment.dcp
    if not engine.counts_blocks_of_a_request:
        return Pool(groups, blocks, size, tokens_of_block, needed, tokens, tokens / longest)
    concurrency = blocks / needed
    if engine.prints_capacity_of_requests:
        tokens = int(concurrency * longest)
    return Pool(groups, blocks, size, tokens_of_block, needed, tokens, concurrency)


def longest_context(
    spec: ModelSpec, deployment: Deployment, kv_bytes: float, batch: int, layout: Layout | None = None
) -> int:
    """The "estimated maximum model length": the longest request that fits, 0 when none does.

    With pipeline stages, versions before 0.16 compare the bytes of all layers with the pool of one stage (logged in
    0.15); the answer is then too short by about the number of stages.
    """
    whole = deployment.engine.version < (0, 16)
    layout = layout or layout_of(spec, deployment)
    groups = layout.groups
    if not groups:
        return deployment.max_model_len
    size = max(group.size for group in groups) if whole else layout.block_bytes
    blocks = math.floor(kv_bytes / size)

    def fits(tokens: int) -> bool:
        return blocks_of_request(groups, tokens, spec, deployment, batch) <= blocks

    return _largest(fits, deployment.max_model_len)


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
