"""What an accelerator is to a plan: memory, bandwidth, dense matrix rates, links and prices, each with its origin."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

Origin = Literal["datasheet", "logged", "assumed", "measured"]
"""``datasheet``: the vendor says so, in its documents or its own published configuration; ``logged``: an engine or a
driver printed it; ``assumed``: a third party says so, or it was remembered and not confirmed; ``measured``: the probe.
"""

Precision = Literal["fp16", "bf16", "fp8", "fp4", "int8"]

# What a matrix product in a precision falls back to on a chip that has no unit for it: the weights are widened
# on the way into the multiplier, so the bytes stay small and the rate is the wider one.
_WIDER: Mapping[Precision, tuple[Precision, ...]] = {
    "fp4": ("bf16", "fp16"),
    "fp8": ("bf16", "fp16"),
    "int8": ("bf16", "fp16"),
    "bf16": ("fp16",),
    "fp16": ("bf16",),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number in base units, with its origin.

    Attributes:
        value: Bytes, bytes per second, operations per second, watts or a count, as the field says.
        origin: See ``Origin``.
        source: Document, file or log it was read from.
    """

    value: float
    origin: Origin
    source: str


@dataclass(frozen=True, slots=True)
class Price:
    """What one accelerator costs for an hour.

    Attributes:
        low: US dollars per hour, the cheapest of the sellers meant.
        high: The dearest; equal to ``low`` where one price is known.
        seller: Who sells at that price, e.g. ``hyperscaler, on demand``.
        date: When the price was read, or None where the source is undated.
        source: Where it was read.
    """

    low: float
    high: float
    seller: str
    date: date | None
    source: str

    @property
    def middle(self) -> float:
        """The middle of the range, in US dollars per hour."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Links:
    """How accelerators reach one another.

    Attributes:
        name: As the vendor calls the fastest link, e.g. ``NVLink4``.
        bytes_per_s: One direction, for one accelerator, inside a domain.
        domain: How many accelerators such links join; 1 where there is only the host's bus.
        server: How many accelerators are reached over the bus of one server.
        bus_bytes_per_s: One direction of the host's bus (PCIe).
        network_bytes_per_s: One direction for one accelerator between servers.
    """

    name: str
    bytes_per_s: Figure
    domain: Figure
    server: Figure
    bus_bytes_per_s: Figure
    network_bytes_per_s: Figure

    def slowest(self, accelerators: int) -> float:
        """Bytes per second in one direction that a group of that size can count on."""
        if accelerators <= self.domain.value:
            return self.bytes_per_s.value
        if accelerators <= self.server.value:
            return self.bus_bytes_per_s.value
        return self.network_bytes_per_s.value


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator of the catalogue; all rates are dense (without structured sparsity).

    Attributes:
        name: Name in the catalogue, e.g. ``H100-SXM``.
        vendor: Maker.
        architecture: Generation, e.g. ``Hopper``.
        aliases: Other names it is found by.
        memory_bytes: Nominal memory (vendors count in decimal gigabytes).
        usable_bytes: What the driver reports as total to a process.
        bandwidth_bytes_per_s: Peak of its own memory.
        flops: Dense multiply-add operations per second (two per multiply-add) by precision of the operands.
        links: Links to other accelerators.
        power_w: Board power limit, or None where unknown.
        prices: Known prices, the latest first.
    """

    name: str
    vendor: str
    architecture: str
    aliases: tuple[str, ...]
    memory_bytes: Figure
    usable_bytes: Figure
    bandwidth_bytes_per_s: Figure
    flops: Mapping[Precision, Figure]
    links: Links
    power_w: Figure | None
    prices: tuple[Price, ...]

    def computes_in(self, precision: Precision) -> Precision:
        """The precision whose rate governs a product of such operands: its own where the chip has it, else a wider."""
        if precision in self.flops:
            return precision
        return next(wider for wider in _WIDER[precision] if wider in self.flops)

    def rate(self, precision: Precision) -> Figure:
        """Dense operations per second for operands of that precision."""
        return self.flops[self.computes_in(precision)]

    def figures(self) -> dict[str, Figure]:
        """Every figure by name, for display and for a check that none lacks an origin."""
        named = {
            "memory_bytes": self.memory_bytes,
            "usable_bytes": self.usable_bytes,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s,
            **{f"{precision}_flops": figure for precision, figure in self.flops.items()},
            "link_bytes_per_s": self.links.bytes_per_s,
            "link_domain": self.links.domain,
            "server": self.links.server,
            "bus_bytes_per_s": self.links.bus_bytes_per_s,
            "network_bytes_per_s": self.links.network_bytes_per_s,
        }
        return named if self.power_w is None else {**named, "power_w": self.power_w}


@dataclass(frozen=True, slots=True)
class Fleet:
    """A number of equal accelerators, as written ``H100-SXM:4``."""

    accelerator: Accelerator
    count: int

    def __str__(self) -> str:
        return f"{self.accelerator.name}:{self.count}"
