"""All figures of one run, from its exchanges and its card's promises."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from setpoint.metrics.correlation import design_effect
from setpoint.metrics.definitions import METRICS
from setpoint.metrics.goodput import Goodput, goodput
from setpoint.metrics.histogram import Histogram, log_histogram
from setpoint.metrics.percentile import Percentile, ascending, percentile, rank_of
from setpoint.metrics.promise import PromiseLike, definition_of
from setpoint.metrics.registry import MetricDefinition
from setpoint.metrics.table import ExchangeTable, Floats, Gaps, Ints, Mask
from setpoint.metrics.window import LittlesLaw, SteadyWindow, littles_law, steady_window

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric over the answered, measured exchanges.

    Attributes:
        metric: Name, e.g. ``ttft``.
        title: As printed.
        unit: Of every value here.
        boundary: To print beside the number.
        samples: Values: exchanges, or gaps for ITL.
        undefined: Answered exchanges without a value.
        minimum: Smallest value; None without values. So are the next two.
        mean: Arithmetic mean.
        maximum: Largest value.
        percentiles: With intervals; ascending.
        histogram: Counts in logarithmic bins.
    """

    metric: str
    title: str
    unit: str
    boundary: str
    samples: int
    undefined: int
    minimum: float | None
    mean: float | None
    maximum: float | None
    percentiles: tuple[Percentile, ...]
    histogram: Histogram

    def at(self, quantile: float) -> Percentile | None:
        """The percentile of that quantile, if it was computed."""
        return next((p for p in self.percentiles if abs(p.quantile - quantile) < 1e-9), None)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates of the whole system over the steady window; never a user's speed.

    Attributes:
        requests_per_s: Answered exchanges done per second.
        output_tokens_per_s: Output tokens per second: those of answered exchanges, each spread evenly over the time
            in which it streamed.
        prompt_tokens_per_s: Prompt tokens of answered exchanges done, per second; None when not all were counted.
        offered_per_s: Planned sends per second.
        failed_per_s: Failed exchanges done per second.
    """

    requests_per_s: float
    output_tokens_per_s: float
    prompt_tokens_per_s: float | None
    offered_per_s: float
    failed_per_s: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts of the answered, measured exchanges, and who counted.

    Attributes:
        output: Output tokens.
        output_counted_by_server: Exchanges whose output the server counted; the others count chunks' tokens.
        prompt: Prompt tokens by the server's count; None when it gave none.
        prompt_counted: Exchanges with such a count.
        prompt_planned: Planned prompt tokens of these.
        cached: Prompt tokens that the server took from its cache; None when it did not say.
        cached_counted: Exchanges with such a count.
        prompt_of_cached: Prompt tokens of these.
    """

    output: int
    output_counted_by_server: int
    prompt: int | None
    prompt_counted: int
    prompt_planned: int
    cached: int | None
    cached_counted: int
    prompt_of_cached: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in figures.

    Attributes:
        exchanges: Measured exchanges (scheduled; whatever became of them).
        answered: Of these, answered.
        warmup: Exchanges of the warm-up; in no figure but this and the next but one.
        outcomes: Measured exchanges by outcome.
        warmup_outcomes: Warm-up exchanges by outcome.
        window: Where rates are taken.
        throughput: None without a window.
        goodput: With attainment.
        tokens: Counted tokens.
        distributions: By metric name.
        littles_law: Consistency check; None without a window.
    """

    exchanges: int
    answered: int
    warmup: int
    outcomes: dict[str, int]
    warmup_outcomes: dict[str, int]
    window: SteadyWindow
    throughput: Throughput | None
    goodput: Goodput
    tokens: Tokens
    distributions: dict[str, Distribution]
    littles_law: LittlesLaw | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON types: what ``run.json`` keeps as ``summary``."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Summary":
        """From what ``to_dict`` made."""
        return msgspec.convert(stored, cls)


def summarise(table: ExchangeTable, promises: Sequence[PromiseLike] = ()) -> Summary:
    """All figures of one run.

    Args:
        table: All its exchanges, the warm-up included.
        promises: Those of the card: their quantiles are added to the usual ones, their limits define goodput.
    """
    measured = table.measured
    warmup = table.select(table.warmup)
    window = steady_window(table)
    return Summary(
        exchanges=len(measured),
        answered=int(measured.answered.sum()),
        warmup=len(warmup),
        outcomes=measured.outcomes(),
        warmup_outcomes=warmup.outcomes(),
        window=window,
        throughput=throughput(measured, window),
        goodput=goodput(promises, measured, window),
        tokens=_tokens(measured),
        distributions=distributions(measured, promises),
        littles_law=littles_law(table, window),
    )


def distributions(table: ExchangeTable, promises: Sequence[PromiseLike] = ()) -> dict[str, Distribution]:
    """Every metric over measured exchanges; those of whole tasks only where one is promised."""
    of_tasks = {definition.name for p in promises if (definition := definition_of(p)) and definition.per == "task"}
    tasks = table.tasks() if of_tasks else table
    return {
        name: distribution(metric, tasks if metric.per == "task" else table, promises)
        for name, metric in METRICS.items()
        if metric.per != "task" or name in of_tasks
    }


def distribution(metric: MetricDefinition, table: ExchangeTable, promises: Sequence[PromiseLike] = ()) -> Distribution:
    """One metric over the answered exchanges of a table (the client's own metrics: over all)."""
    wanted = {p.quantile for p in promises if p.quantile is not None and definition_of(p) == metric}
    ordered, rows, at_most = _observations(metric, table)
    total, session = at_most(np.inf), table.session[rows]
    found = []
    for quantile in sorted({*QUANTILES, *wanted}):
        spread = 1.0
        if len(ordered):
            spread = design_effect(at_most(float(ordered[rank_of(len(ordered), quantile)])), total, session)
        found.append(percentile(ordered, quantile, spread))
    expected = table.answered if metric.answered_only else np.ones(len(table), dtype=np.bool_)
    return Distribution(
        metric=metric.name,
        title=metric.title,
        unit=metric.unit,
        boundary=metric.boundary,
        samples=len(ordered),
        undefined=int(expected.sum() - rows.sum()),
        minimum=float(ordered[0]) if len(ordered) else None,
        mean=float(ordered.mean(dtype=np.float64)) if len(ordered) else None,
        maximum=float(ordered[-1]) if len(ordered) else None,
        percentiles=tuple(found),
        histogram=log_histogram(ordered),
    )


def _observations(
    metric: MetricDefinition, table: ExchangeTable
) -> tuple[Floats | Gaps, Mask, Callable[[float], Ints]]:
    """Ascending values, the exchanges that have any, and how many of each exchange's are at most a given value."""
    values, kept = metric.observed(table)
    if metric.per == "gap":
        values.sort()
        return values, kept, lambda limit: table.gaps_at_most(limit)[kept]
    return ascending(values), kept, lambda limit: (values <= limit).astype(np.int64)


def throughput(table: ExchangeTable, window: SteadyWindow) -> Throughput | None:
    """Rates over a window; None without one."""
    if window.length_s <= 0:
        return None
    done = (table.done_s >= window.start_s) & (table.done_s <= window.end_s)
    sent = (table.scheduled_s >= window.start_s) & (table.scheduled_s <= window.end_s)
    answered = table.answered
    served = done & answered
    prompts = table.prompt_tokens[served]
    streamed = _share_inside(table, window)
    return Throughput(
        requests_per_s=float(served.sum()) / window.length_s,
        output_tokens_per_s=float((table.output_tokens * streamed)[answered].sum()) / window.length_s,
        prompt_tokens_per_s=None if np.isnan(prompts).any() else float(prompts.sum()) / window.length_s,
        offered_per_s=float(sent.sum()) / window.length_s,
        failed_per_s=float((done & table.failed).sum()) / window.length_s,
    )


def _share_inside(table: ExchangeTable, window: SteadyWindow) -> Floats:
    """Share of each exchange's stream that lies in the window; an answer in one piece is in or out by its end."""
    first, last = table.first_token_s, table.last_token_s
    length = last - first
    share = ((table.done_s >= window.start_s) & (table.done_s <= window.end_s)).astype(np.float64)
    overlap = np.minimum(last, window.end_s) - np.maximum(first, window.start_s)
    np.divide(np.maximum(overlap, 0.0), length, out=share, where=length > 0)
    return share


def _tokens(table: ExchangeTable) -> Tokens:
    answered = table.answered
    prompt_known = answered & ~np.isnan(table.prompt_tokens)
    cached_known = prompt_known & ~np.isnan(table.cached_tokens)
    return Tokens(
        output=int(table.output_tokens[answered].sum()),
        output_counted_by_server=int((answered & table.counted_by_server).sum()),
        prompt=int(table.prompt_tokens[prompt_known].sum()) if prompt_known.any() else None,
        prompt_counted=int(prompt_known.sum()),
        prompt_planned=int(table.planned_prompt_tokens[prompt_known].sum()),
        cached=int(table.cached_tokens[cached_known].sum()) if cached_known.any() else None,
        cached_counted=int(cached_known.sum()),
        prompt_of_cached=int(table.prompt_tokens[cached_known].sum()),
    )
