"""Base against candidate: paired by task, so that what is hard for both does not hide what changed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy import optimize, stats
from scipy.special import ndtri

from setpoint.errors import PinsDiffer, UsageError
from setpoint.metrics.proportion import CONFIDENCE
from setpoint.metrics.table import Floats
from setpoint.metrics.verdict import State
from setpoint.quality.distributions import Divergence, divergence, floor_of
from setpoint.records.pins import Difference, differences
from setpoint.records.record import RunRecord
from setpoint.units import format_share

DELTA = 0.05  # loss of score that is still "no worse"
HOW_IT_WAS_MEASURED = ("suites", "sampling", "dialect")
MODEL_PINS = frozenset(
    {"model_file", "model_revision", "model_source", "converted_from", "precision", "licence", "model"}
)
NOT_OF_THE_TARGET = frozenset(
    {
        "client_version", "schedule_seed", "schedule_digest", "card_digest", "cache_state", "output_lengths",
        "prompt_lengths",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Paired:
    """One suite, two targets.

    Attributes:
        suite: Its name.
        tasks: Tasks compared.
        coverage: Share of pairs in which both answers were measured.
        base: Mean score of the base.
        candidate: Mean score of the candidate.
        difference: Candidate minus base, over pairs with both measured; None without one.
        low: Lower end of its 95% interval, unmeasured answers taken against the candidate.
        high: Upper end, unmeasured answers taken for it.
        better: Tasks that the candidate does better.
        worse: Tasks that it does worse.
        p_value: McNemar's exact test on these two counts (of tasks).
        same_answers: Share of pairs with the same answer, byte for byte; reported, never judged.
        delta: Loss that is still "no worse".
        state: Met: no worse than the base by more than ``delta``. Missed: worse by more. Else undecided.
        words: Better, worse, same within delta, or undecided, with the numbers.
    """

    suite: str
    tasks: int
    coverage: float
    base: float | None
    candidate: float | None
    difference: float | None
    low: float | None
    high: float | None
    better: int
    worse: int
    p_value: float | None
    same_answers: float | None
    delta: float
    state: State
    words: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations.

    Attributes:
        base: Id of its record.
        candidate: Id of its record.
        changes: Pins in which the targets differ; none makes it an A/A run.
        suites: One a suite.
        floor: The base against itself; None where no distributions were taken.
        divergence: Of the candidate from the base; likewise.
        checks: Serving checks that changed: name, state in the base, state in the candidate.
        prompts_differ: The same messages are rendered to another prompt; None when one of them does not tell.
    """

    base: str
    candidate: str
    changes: tuple[Difference, ...]
    suites: tuple[Paired, ...]
    floor: Divergence | None
    divergence: Divergence | None
    checks: tuple[tuple[str, str, str], ...]
    prompts_differ: bool | None


def compare(base: RunRecord, candidate: RunRecord, *, delta: float = DELTA, variable: str | None = None) -> Comparison:
    """Compares two evaluations.

    Args:
        base: What is in service.
        candidate: What may replace it.
        delta: Loss of score that is still "no worse".
        variable: The pin that was meant to change; found out when None.

    Raises:
        PinsDiffer: They were measured in different ways, or the targets differ in more than one variable.
        UsageError: One of them holds neither graded answers nor distributions.
    """
    for record in (base, candidate):
        if record.quality().is_empty() and record.distributions().is_empty():
            raise UsageError(f"{record.id} holds no graded answers.", fix="`setpoint eval` makes such a record.")
    changes = _allowed(base, candidate, variable)
    left, right = base.quality(), candidate.quality()
    suites = tuple(paired(part, right.filter(pl.col("suite") == name[0]), delta) for name, part in _by_suite(left))
    taken, other = base.distributions(), candidate.distributions()
    first = pl.col("repeat") == 0
    checks, prompts = _checks(base.meta.quality or {}, candidate.meta.quality or {})
    return Comparison(
        base=base.id,
        candidate=candidate.id,
        changes=changes,
        suites=suites,
        floor=floor_of(taken),
        divergence=divergence(taken.filter(first), other.filter(first)),
        checks=checks,
        prompts_differ=prompts,
    )


def paired(base: pl.DataFrame, candidate: pl.DataFrame, delta: float) -> Paired:
    """One suite: pairs by task and epoch, tasks as clusters."""
    both = base.select("suite", "task", "epoch", "score", "digest", "required_coverage").join(
        candidate.select("task", "epoch", "score", "digest"), on=["task", "epoch"], suffix="_new"
    )
    gained = _by_task(both.drop_nulls(["score", "score_new"]), pl.col("score_new") - pl.col("score"))
    against = _by_task(both, pl.col("score_new").fill_null(0.0) - pl.col("score").fill_null(1.0))
    in_favour = _by_task(both, pl.col("score_new").fill_null(1.0) - pl.col("score").fill_null(0.0))
    measured = both.drop_nulls(["score", "score_new"])
    coverage = measured.height / both.height if both.height else 0.0
    difference = low = high = p_value = None
    better, worse = int((gained > 0).sum()), int((gained < 0).sum())
    if len(gained):
        difference = float(gained.mean())
        low, high = min(_lower(against, in_favour), difference), max(-_lower(-in_favour, -against), difference)
        p_value = float(stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
    needed = float(base["required_coverage"][0])
    state, words = _verdict(difference, low, high, coverage, needed, delta)
    told = measured.drop_nulls(["digest", "digest_new"])
    return Paired(
        suite=str(base["suite"][0]),
        tasks=both["task"].n_unique(),
        coverage=coverage,
        base=_mean(measured["score"]),
        candidate=_mean(measured["score_new"]),
        difference=difference,
        low=low,
        high=high,
        better=better,
        worse=worse,
        p_value=p_value,
        same_answers=_mean((told["digest"] == told["digest_new"]).cast(pl.Float64)),
        delta=delta,
        state=state,
        words=words,
    )


def _verdict(
    difference: float | None, low: float | None, high: float | None, coverage: float, needed: float, delta: float
) -> tuple[State, str]:
    if difference is None or low is None or high is None:
        return State.UNDECIDED, "no pair of answers was measured"
    numbers = f"{difference:+.1%} (95% interval {low:+.1%} to {high:+.1%})"
    if coverage < needed:
        return (
            State.UNDECIDED,
            f"coverage too low: {format_share(coverage)} of pairs, {format_share(needed)} needed; {numbers}",
        )
    if low >= -delta:
        kind = (
            "better"
            if low > 0
            else f"same within {delta:.0%}"
            if high <= delta
            else f"no worse by more than {delta:.0%}"
        )
        return State.MET, f"{kind}: {numbers}"
    if high < -delta:
        return State.MISSED, f"worse: {numbers}, allowed -{delta:.0%}"
    kind = f"worse, whether by more than {delta:.0%} is undecided" if high < 0 else "undecided"
    return State.UNDECIDED, f"{kind}: {numbers}"


def _lower(worst: Floats, best: Floats) -> float:
    """Lower end of the 95% interval of the mean gain, tasks resampled whole, whatever unmeasured answers were.

    The hull of the percentile bootstrap and of Agresti and Min's interval for paired proportions (half an observation
    added to each cell; Statistics in Medicine 24, 2005): where few tasks changed the bootstrap alone is too sure, and
    where none did it has no width.

    Args:
        worst: Least gain that each task can have; equal to ``best`` where all was measured.
        best: Largest gain likewise.
    """
    low = _least_of_counts(worst, best)
    if len(worst) > 1:  # lowering a gain lowers every resampled mean: the worst case has the lowest end
        found = stats.bootstrap(
            (worst,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=np.random.default_rng(0)
        ).confidence_interval
        low = min(low, float(found.low))
    return max(-1.0, low)


def _least_of_counts(worst: Floats, best: Floats) -> float:
    """The least lower end of Agresti and Min's interval over all sums of gains and losses that are possible.

    It is no function of the worst case alone: losses that are all alike have less variance than mixed ones. With ``m``
    gains less losses, ``s`` their sum and ``n`` tasks it is ``m/(n+2) - z sqrt(s - m²/(n+2))/(n+2)``: convex, and
    falling in ``s``, so the least lies where the gains or the losses are at their most.
    """
    n, z = len(worst) + 2, float(ndtri(0.5 + CONFIDENCE / 2))
    up = [float(np.maximum(g, 0).sum()) + 0.5 for g in (worst, best)]
    down = [float(np.maximum(-g, 0).sum()) + 0.5 for g in (best, worst)]

    def end(gained: float, lost: float) -> float:
        return ((gained - lost) - z * math.sqrt(gained + lost - (gained - lost) ** 2 / n)) / n

    edges = ((lambda lost: end(up[1], lost), down), (lambda gained: end(gained, down[1]), up))
    return min(_least(edge, *ends) for edge, ends in edges)


def _least(convex: Callable[[float], float], start: float, stop: float) -> float:
    inside = optimize.minimize_scalar(convex, bounds=(start, stop), method="bounded", options={"xatol": 1e-12})
    return min(convex(start), convex(stop), float(inside.fun))


def _by_task(rows: pl.DataFrame, gain: pl.Expr) -> Floats:
    means = rows.group_by("task").agg(gain.mean().alias("gain")).sort("task")
    return means["gain"].to_numpy().astype(np.float64)


def _by_suite(rows: pl.DataFrame) -> list[tuple[tuple[str, ...], pl.DataFrame]]:
    return [((str(name[0]),), part) for name, part in rows.sort("suite").group_by("suite", maintain_order=True)]


def _mean(series: pl.Series) -> float | None:
    mean = series.mean()
    return mean if isinstance(mean, float) else None


def _allowed(base: RunRecord, candidate: RunRecord, variable: str | None) -> tuple[Difference, ...]:
    """What changed; refuses what cannot be laid at one variable's door."""
    found = [d for d in differences(base.meta.pins, candidate.meta.pins) if _top(d.pin) not in NOT_OF_THE_TARGET]
    measured = [d for d in found if _top(d.pin) in HOW_IT_WAS_MEASURED]
    if measured:
        raise PinsDiffer(
            f"{base.id} and {candidate.id} were not measured in the same way: {'; '.join(map(str, measured))}.",
            fix="Repeat one of them with the other's suites and sampling.",
        )
    groups = {"model" if _top(d.pin) in MODEL_PINS else d.pin for d in found}
    named = {variable} if variable is not None else set(list(groups)[:1])
    rest = [d for d in found if not _belongs(d.pin, named)]
    if rest:
        raise PinsDiffer(
            f"{base.id} and {candidate.id} differ in more than one variable: {'; '.join(map(str, found))}.",
            fix="Change one at a time; --variable names the one that was meant to change, or a group such as "
            "engine_flags or model.",
        )
    return tuple(found)


def _belongs(pin: str, named: set[str]) -> bool:
    return any(pin == n or pin.startswith(f"{n}.") or (n == "model" and _top(pin) in MODEL_PINS) for n in named)


def _top(pin: str) -> str:
    return pin.partition(".")[0]


def _checks(
    base: Mapping[str, Any], candidate: Mapping[str, Any]
) -> tuple[tuple[tuple[str, str, str], ...], bool | None]:
    left = {c["name"]: c for c in base.get("serving", ())}
    right = {c["name"]: c for c in candidate.get("serving", ())}
    changed = tuple(
        (name, str(left[name]["state"]), str(right[name]["state"]))
        for name in sorted(left.keys() & right.keys())
        if left[name]["state"] != right[name]["state"]
    )
    prompts = [c.get("rendered_prompt", {}).get("facts", {}).get("sha256") for c in (left, right)]
    return changed, None if None in prompts else prompts[0] != prompts[1]
