"""The fitted terms: how far engines stay from the peak, and what they add to it.

The values are in ``coefficients.json``, made by ``benchmarks/fit_latency.py`` from measured rows; here are their
meanings, and what was believed of each before the fit: a prior value, and by what factor it may easily be off.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

Backend = Literal["vllm", "sglang", "trtllm"]
BACKENDS: tuple[Backend, ...] = ("vllm", "sglang", "trtllm")


@dataclass(frozen=True, slots=True)
class Term:
    """One fitted number, above zero.

    Attributes:
        prior: Believed before the fit.
        spread: Standard deviation of its logarithm in that belief.
        limit: It cannot be more, by its meaning; None without.
        meaning: In words, with the unit.
    """

    prior: float
    spread: float
    limit: float | None
    meaning: str


_SHARE = 0.97
_COMMON: dict[str, Term] = {
    "memory": Term(0.8, 0.3, _SHARE, "share of memory bandwidth reached while reading dense weights"),
    "memory_experts": Term(0.75, 0.3, _SHARE, "share of memory bandwidth reached while reading routed experts"),
    "memory_cache": Term(0.6, 0.5, _SHARE, "share of memory bandwidth reached while reading the cache"),
    "compute": Term(0.6, 0.3, _SHARE, "share of the 16-bit matrix rate reached by dense products"),
    "compute_experts": Term(0.4, 0.7, _SHARE, "share of the 16-bit matrix rate reached by routed experts"),
    "compute_attention": Term(0.4, 0.3, _SHARE, "share of the 16-bit matrix rate reached by attention"),
    "eight_bit": Term(0.9, 0.2, 1.05, "further share of the rate in 8 bits"),
    "four_bit": Term(0.7, 0.3, 1.05, "further share of the rate in 4 bits"),
    "tile_rows": Term(16.0, 0.7, None, "rows that an expert computes beyond those it got, rounding up to tiles"),
    "passes": Term(16.0, 0.5, None, "passes over the activations in one layer"),
    "link": Term(0.5, 0.5, _SHARE, "share of link bandwidth reached by collectives"),
    "collective_s": Term(6e-6, 1.0, None, "seconds of one collective for each doubling of the ranks"),
    "kernel_s": Term(3e-6, 1.0, None, "seconds of one kernel of a decode step, replayed from a graph"),
    "step_s": Term(1e-3, 1.0, None, "seconds of one decode step whatever its size"),
    "token_s": Term(1e-5, 1.0, None, "seconds of one sequence of a decode step: scheduling, sampling, output"),
    "blackwell_compute": Term(0.9, 0.3, 1.05, "further share of the matrix rate on Blackwell"),
    "blackwell_link": Term(1.0, 0.3, 1.05, "further share of link bandwidth on Blackwell"),
    "blackwell_kernel": Term(1.0, 0.3, None, "time of a kernel on Blackwell, in those of Hopper"),
    "burst_decay": Term(1.0, 0.5, None, "exponent of the share of decoding in the wait behind one's own burst"),
    "queue": Term(0.3, 0.5, None, "prompts waited for in steady state, in those of a queue of equal services"),
    "data_parallel": Term(0.5, 1.0, None, "prefills waited for because data-parallel ranks go in step"),
    "drafted": Term(2.2, 0.15, None, "tokens per step with three draft tokens of the model's own head"),
}
_PER_BACKEND: dict[str, tuple[dict[Backend, float], float, str]] = {
    "launch_s": (dict.fromkeys(BACKENDS, 5e-6), 1.0, "seconds of one kernel of a prefill, launched by the host"),
    "interference": (dict.fromkeys(BACKENDS, 1.0), 0.1, "share of prefill time by which decoding is held up"),
    "host_s": ({"vllm": 0.02, "sglang": 0.05, "trtllm": 0.05}, 1.0, "seconds from request to scheduler and back"),
    "burst": (dict.fromkeys(BACKENDS, 0.03), 1.0, "part of the other sessions' prefills waited for"),
    "visible": (dict.fromkeys(BACKENDS, 0.5), 1.0, "decode steps until the first token is seen"),
}
_RELATIVE: dict[str, tuple[float, str]] = {
    "kernel": (0.3, "time of a kernel, in those of vLLM"),
    "rate": (0.3, "share of the matrix rate, in those of vLLM"),
}

TERMS: Mapping[str, Term] = MappingProxyType(
    _COMMON
    | {
        f"{name}.{backend}": Term(priors[backend], spread, None, f"{meaning}, {backend}")
        for name, (priors, spread, meaning) in _PER_BACKEND.items()
        for backend in BACKENDS
    }
    | {
        f"{name}.{backend}": Term(1.0, spread, None, f"{meaning}, {backend}")
        for name, (spread, meaning) in _RELATIVE.items()
        for backend in ("sglang", "trtllm")
    }
)
"""All terms in the order in which the fit varies them."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Where measured over estimated lay on models that the fit had not seen.

    Attributes:
        low: Lower end of the middle 80%.
        high: Upper end.
    """

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A fit.

    Attributes:
        values: By term.
        ranges: By metric (``tpot``, ``ttft``) and backend.
        coverage: Share of rows meant to lie within the ranges.
        measured: Errors of the fit, as they are in the file.
    """

    values: Mapping[str, float]
    ranges: Mapping[str, Mapping[str, Quantiles]]
    coverage: float
    measured: Mapping[str, Any]


@cache
def packaged() -> Coefficients:
    """The fit that comes with the package."""
    raw = json.loads((resources.files("setpoint.sizing.latency") / "coefficients.json").read_text())
    return Coefficients(
        values=MappingProxyType({name: float(raw["terms"][name]) for name in TERMS}),
        ranges={
            metric: {backend: Quantiles(*pair) for backend, pair in by.items()} for metric, by in raw["ranges"].items()
        },
        coverage=float(raw["coverage"]),
        measured=raw["measured"],
    )
