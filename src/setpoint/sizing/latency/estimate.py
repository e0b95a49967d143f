"""TTFT and TPOT of a placement at a load, as ranges with their coverage."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator
from setpoint.sizing.latency.service import DRAFTED, Cases, Times, components, times
from setpoint.sizing.latency.shape import Shape
from setpoint.sizing.latency.terms import BACKENDS, Backend, Coefficients, packaged
from setpoint.sizing.latency.tuned import Tuned, stack_of, tuned_rows
from setpoint.sizing.latency.work import FloatArray, Split, Work, stack, step
from setpoint.sizing.term import Range

MEASURED = frozenset({"H100-SXM", "H200-SXM", "B200-SXM", "B300-SXM"})
"""Accelerators that rows of the fit were measured on."""

_UNMEASURED = 1.5
_CHUNK_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Request:
    """What to estimate.

    Attributes:
        shape: The model.
        accelerator: Each accelerator of the replica.
        split: Placement of one replica.
        input_tokens: Prompt of a request, mean.
        output_tokens: Answer of a request, mean.
        sessions: Requests in flight at one replica, waiting ones included, mean.
        backend: Engine.
        cached_tokens: Of the prompt, found in the prefix cache.
        slots: Sequences that fit into the cache at these lengths; None: as many as ask.
        chunk_tokens: Most prompt tokens of one step.
        drafting: Whether the model's own head drafts three tokens a step.
    """

    shape: Shape
    accelerator: Accelerator
    split: Split
    input_tokens: float
    output_tokens: float
    sessions: float
    backend: Backend = "vllm"
    cached_tokens: float = 0.0
    slots: float | None = None
    chunk_tokens: int = _CHUNK_TOKENS
    drafting: bool = False

    def __post_init__(self) -> None:
        for name, least in (("input_tokens", 1), ("output_tokens", 1), ("sessions", 1), ("chunk_tokens", 1)):
            if not getattr(self, name) >= least:
                raise UsageError(f"{name} is {getattr(self, name)}, expected at least {least}.")
        if not 0 <= self.cached_tokens < self.input_tokens:
            raise UsageError(f"cached_tokens is {self.cached_tokens}, expected less than input_tokens and not below 0.")
        if self.slots is not None and not self.slots >= 1:
            raise UsageError(f"{self.slots:g} sequences fit into the cache: there is no latency to estimate.")
        if self.backend not in BACKENDS:
            raise UsageError(
                f"Latency of the engine {str(self.backend)[:40]!r} is not known.", fix=f"Use {', '.join(BACKENDS)}."
            )
        if self.drafting and not self.shape.draft_layers:
            raise UsageError(f"{self.shape.name} has no layers of its own that draft.")

    @property
    def running(self) -> float:
        """Requests that fit at once."""
        return self.sessions if self.slots is None else min(self.sessions, self.slots)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What sessions of one replica see. Times are means in seconds.

    Attributes:
        ttft_s: Time to first token, from send to the first visible delta.
        tpot_s: Time per output token.
        coverage: Share of measured rows of unseen models that lay within such ranges; None where nothing like this
            accelerator or placement was measured and the ranges are widened by judgement.
        step_s: A decode step of all running sessions, per token it yields.
        prefill_s: One prompt alone.
        stall_s: The longest gap to expect: a decode step that carries a full chunk of another's prompt.
        queue_s: Part of TTFT spent behind other prompts.
        slot_s: Part of TTFT spent waiting for room in the cache.
        busy: Share of engine time spent on prompts.
        requests_per_s: Requests completed by one replica.
        tokens_per_s: Output tokens of one replica (system speed).
        shares: TPOT by cause, adding up to one.
        limited_by: The largest of them, in words.
        notes: What the estimate leaves out or had no evidence for.
    """

    ttft_s: Range
    tpot_s: Range
    coverage: float | None
    step_s: float
    prefill_s: float
    stall_s: float
    queue_s: float
    slot_s: float
    busy: float
    requests_per_s: float
    tokens_per_s: float
    shares: Mapping[str, float]
    limited_by: str
    notes: tuple[str, ...]


_CAUSES = {
    "dense": "reading weights",
    "experts": "reading experts",
    "attention": "reading the cache",
    "links": "links between accelerators",
    "activations": "passing activations",
    "floor": "kernel launches and scheduling",
    "prompts": "prompts of other sessions",
}


def estimate(request: Request, coefficients: Coefficients | None = None) -> Estimate:
    """The estimate of one placement at one load."""
    return estimates([request], coefficients)[0]


def estimates(requests: Sequence[Request], coefficients: Coefficients | None = None) -> list[Estimate]:
    """The estimates of many, in one pass."""
    if not requests:
        return []
    fit = packaged() if coefficients is None else coefficients
    cases, terms = prepare(requests, fit)
    found = times(cases, terms)
    parts = components(cases.decode, terms)
    return [_estimate(request, fit, found, parts, index) for index, request in enumerate(requests)]


def prepare(requests: Sequence[Request], fit: Coefficients) -> tuple[Cases, Tuned[FloatArray]]:
    """Columns for ``service.times``."""
    decode, verify, prefill = [], [], []
    for r in requests:
        each = max(r.running / r.split.dp / r.split.pp, 1.0)
        context = r.input_tokens + r.output_tokens / 2
        decode.append(_decode(r, each, context))
        verify.append(_decode(r, each, context, 1 + DRAFTED) if r.drafting else decode[-1])
        new = r.input_tokens - r.cached_tokens
        prefill.append(
            step(
                r.shape,
                r.accelerator,
                r.split,
                tokens=new / chunks_of(r),
                sequences=1.0,
                context=r.cached_tokens + new / 2,
                prefill=True,
            )
        )
    numbers = np.array(
        [
            (
                chunks_of(r),
                r.sessions,
                r.running,
                r.split.dp,
                r.split.pp,
                r.output_tokens,
                r.drafting,
                r.shape.draft_layers / r.shape.depth,
            )
            for r in requests
        ],
        dtype=np.float64,
    ).T
    stacks = [stack_of(r.shape, r.accelerator, r.backend) for r in requests]
    distinct = tuple(dict.fromkeys(stacks))
    index = {one: number for number, one in enumerate(distinct)}
    of_row = np.array([index[one] for one in stacks])
    return Cases(stack(decode), stack(verify), stack(prefill), *numbers), tuned_rows(fit.values, distinct, of_row)


def chunks_of(request: Request) -> int:
    """Steps that a prompt is prefilled in."""
    return -int(-(request.input_tokens - request.cached_tokens) // request.chunk_tokens)


def _decode(request: Request, sequences: float, context: float, tokens_each: int = 1) -> Work[float]:
    return step(
        request.shape,
        request.accelerator,
        request.split,
        tokens=sequences * tokens_each,
        sequences=sequences,
        context=context,
        prefill=False,
    )


def _estimate(
    request: Request, fit: Coefficients, found: Times, parts: Mapping[str, FloatArray], index: int
) -> Estimate:
    one = Times(*(float(column[index]) for column in astuple(found)))  # type: ignore[arg-type]
    ttft, tpot = float(one.ttft_s), float(one.tpot_s)
    known = request.accelerator.name in MEASURED and request.split.pp == 1
    wider = 1.0 if known else _UNMEASURED
    rate = request.sessions / (ttft + request.output_tokens * tpot)
    shares = _shares(one, parts, index)
    return Estimate(
        ttft_s=_range(ttft, fit, "ttft", request.backend, wider),
        tpot_s=_range(tpot, fit, "tpot", request.backend, wider),
        coverage=fit.coverage if known else None,
        step_s=float(one.step_s),
        prefill_s=float(one.prefill_s),
        stall_s=float(one.step_s + one.chunk_s),
        queue_s=float(one.queue_s),
        slot_s=float(one.slot_s),
        busy=float(one.busy),
        requests_per_s=rate,
        tokens_per_s=rate * request.output_tokens,
        shares=shares,
        limited_by=_limit(one, shares),
        notes=_notes(request),
    )


def _range(value: float, fit: Coefficients, metric: str, backend: Backend, wider: float) -> Range:
    around = fit.ranges[metric][backend]
    return Range(value * around.low / wider, value, value * around.high * wider)


def _shares(one: Times, parts: Mapping[str, FloatArray], index: int) -> dict[str, float]:
    """TPOT by cause. With drafting, a step's causes keep their proportions."""
    named = {name: float(column[index]) for name, column in parts.items()}
    tpot, step_s = float(one.tpot_s), float(one.step_s)
    whole = max(sum(named.values()), step_s)
    named["floor"] = whole - sum(named.values())
    scaled = {name: value / whole * step_s / tpot for name, value in named.items()}
    return scaled | {"prompts": 1 - step_s / tpot}


def _limit(one: Times, shares: Mapping[str, float]) -> str:
    if one.slot_s > 0:
        return "room in the cache"
    return _CAUSES[max(shares, key=lambda name: shares[name])]


def _notes(request: Request) -> tuple[str, ...]:
    notes = []
    if request.accelerator.name not in MEASURED:
        notes.append(f"No measured row is of {request.accelerator.name}; the ranges are wider by judgement.")
    if request.split.pp > 1:
        notes.append("No measured row has pipeline stages; the ranges are wider by judgement.")
    if request.split.accelerators > request.accelerator.links.domain.value:
        notes.append(f"{request.split.accelerators} accelerators are more than {request.accelerator.links.name} joins.")
    return tuple(notes)
