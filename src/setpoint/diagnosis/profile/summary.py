"""Kernels by family, their share of the time, host gaps, and compute-bound or bandwidth-bound by roofline."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from setpoint.diagnosis.profile.kernel import Kernel

GAP_LEAST_S = 5e-6  # a shorter gap is the distance between two launches that were queued


class Bound(StrEnum):
    """What limits a kernel."""

    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"
    UNKNOWN = "unknown"  # no shapes, or no figures of the device


@dataclass(frozen=True, slots=True)
class Roof:
    """A device's roofline.

    Attributes:
        flops_per_s: Peak at the precision in use.
        bytes_per_s: Memory bandwidth.
    """

    flops_per_s: float
    bytes_per_s: float

    def bound(self, flops: float, moved_bytes: float) -> Bound:
        """Above the ridge compute, below it bandwidth (S. Williams, A. Waterman, D. Patterson, CACM 52, 2009)."""
        return Bound.COMPUTE if flops / moved_bytes >= self.flops_per_s / self.bytes_per_s else Bound.BANDWIDTH


@dataclass(frozen=True, slots=True)
class Family:
    """All kernels of one family.

    Attributes:
        name: Of the family.
        calls: Number of kernels.
        time_s: Their time, added up.
        share: Of the time of all kernels.
        bound: What limits most of the time for which shapes are known.
        known_share: Share of its time for which shapes are known.
        longest: Name of the kernel that takes the most of it.
    """

    name: str
    calls: int
    time_s: float
    share: float
    bound: Bound
    known_share: float
    longest: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A trace in figures.

    Attributes:
        span_s: From the first kernel to the end of the last, over all devices, one after the other.
        busy_share: Share of it in which a kernel ran.
        gaps: Number of gaps of 5 µs or more in which a device had nothing to do.
        gap_s: Their time.
        longest_gap_s: The longest.
        devices: Number of devices.
        families: The largest first.
    """

    span_s: float
    busy_share: float
    gaps: int
    gap_s: float
    longest_gap_s: float
    devices: int
    families: tuple[Family, ...]


def profile(kernels: Sequence[Kernel], roof: Roof | None = None) -> Profile:
    """The figures of a trace.

    Args:
        kernels: At least one.
        roof: Of the device; None leaves what limits them unknown.
    """
    devices: dict[int, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        devices[kernel.device].append(kernel)
    span_s = busy_s = 0.0
    gaps: list[float] = []
    for own in devices.values():
        ordered = sorted(own, key=lambda k: k.start_s)
        end_s = ordered[0].start_s
        for kernel in ordered:
            gap_s = kernel.start_s - end_s
            if gap_s >= GAP_LEAST_S:
                gaps.append(gap_s)
            busy_s += max(0.0, kernel.end_s - max(end_s, kernel.start_s))
            end_s = max(end_s, kernel.end_s)
        span_s += end_s - ordered[0].start_s
    return Profile(
        span_s=span_s,
        busy_share=busy_s / span_s if span_s > 0 else 0.0,
        gaps=len(gaps),
        gap_s=sum(gaps),
        longest_gap_s=max(gaps, default=0.0),
        devices=len(devices),
        families=_families(kernels, roof),
    )


def _families(kernels: Sequence[Kernel], roof: Roof | None) -> tuple[Family, ...]:
    groups: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.family].append(kernel)
    whole_s = sum(k.length_s for k in kernels)
    return tuple(sorted((_family(n, own, whole_s, roof) for n, own in groups.items()), key=lambda f: -f.time_s))


def _family(name: str, kernels: Sequence[Kernel], whole_s: float, roof: Roof | None) -> Family:
    by_name: dict[str, float] = defaultdict(float)
    by_bound: dict[Bound, float] = defaultdict(float)
    for kernel in kernels:
        by_name[kernel.name] += kernel.length_s
        if roof is not None and kernel.flops is not None and kernel.bytes:
            by_bound[roof.bound(kernel.flops, kernel.bytes)] += kernel.length_s
    time_s = sum(k.length_s for k in kernels)
    return Family(
        name=name,
        calls=len(kernels),
        time_s=time_s,
        share=time_s / whole_s if whole_s > 0 else 0.0,
        bound=max(by_bound, key=lambda b: by_bound[b], default=Bound.UNKNOWN),
        known_share=sum(by_bound.values()) / time_s if time_s > 0 else 0.0,
        longest=max(by_name, key=lambda n: by_name[n]),
    )
