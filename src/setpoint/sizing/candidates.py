"""Which placements are tried: accelerators, counts and splits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from setpoint.hardware import Accelerator, Fleet
from setpoint.models.layer import Experts
from setpoint.models.spec import ModelSpec
from setpoint.sizing.deployment import is_latent

SERVERS_AT_MOST = 4
"""A replica is spread over so many servers at most; larger ones exist and are built, not picked from a list."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A split of one replica.

    Attributes:
        tp: Tensor-parallel ranks.
        pp: Pipeline stages.
        dp: Data-parallel ranks of attention.
        expert: Experts are dealt out whole.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    expert: bool = False

    @property
    def accelerators(self) -> int:
        """Of the replica."""
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        parts = [f"TP{self.tp}"]
        if self.pp > 1:
            parts.append(f"PP{self.pp}")
        if self.dp > 1:
            parts.append(f"DP{self.dp}")
        return " ".join([*parts, *(["EP"] if self.expert else [])])


def reach(chip: Accelerator) -> int:
    """Accelerators that tensor parallelism can join without a network between them."""
    return int(max(chip.links.domain.value, chip.links.server.value))


def sizes(chip: Accelerator, available: int | None) -> list[int]:
    """Accelerators of a replica: powers of two, and all that are available.

    Args:
        chip: The accelerator.
        available: How many there are; None: as many as one wants.
    """
    most = SERVERS_AT_MOST * reach(chip) if available is None else available
    found = {2**power for power in range(12) if 2**power <= min(most, 64)}
    return sorted(found | ({available} if available is not None else set()))


def worth(count: int, smallest: int | None) -> bool:
    """Whether a larger replica is worth a look, where one may have as many accelerators as one wants.

    A replica of more than four times the accelerators that hold the model loses more to links than it gains.
    """
    return smallest is None or count <= 4 * smallest


def layouts(spec: ModelSpec, chip: Accelerator, count: int) -> Iterator[Layout]:
    """Splits of one replica of that many accelerators.

    Tensor parallelism stays within what NVLink or the bus joins; pipelines join servers, and cards without a fast
    link; mixtures of experts may also deal out experts whole, with attention split or copied.
    """
    joined = reach(chip)
    if count <= joined:
        yield Layout(tp=count)
        if count > chip.links.domain.value and count % 2 == 0:
            yield Layout(tp=count // 2, pp=2)
    else:
        stages = -(-count // joined)
        if count % stages == 0:
            yield Layout(tp=count // stages, pp=stages)
    if count > 1 and any(isinstance(layer.feed_forward, Experts) for layer in spec.layers):
        if count <= joined:
            yield Layout(tp=count, expert=True)
        if _copied(spec, count):
            yield Layout(dp=count, expert=True)
        if count > joined:
            yield Layout(tp=joined, dp=count // joined, expert=True)


def _copied(spec: ModelSpec, ranks: int) -> bool:
    """Whether tensor parallelism would copy keys, so that data-parallel attention keeps more."""
    return is_latent(spec) or any(getattr(layer.mixer, "kv_heads", ranks) < ranks for layer in spec.layers)


def fleets(hardware: Sequence[Fleet] | None, known: Mapping[str, Accelerator]) -> list[tuple[Accelerator, int | None]]:
    """Accelerators to try, and how many there are of each; None where nobody said."""
    if hardware is None:
        return [(chip, None) for chip in known.values()]
    return [(fleet.accelerator, fleet.count) for fleet in hardware]
