"""Goodput: exchanges that are answered and within every limit; attainment: their share of all that were scheduled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from setpoint.metrics.estimate import ShareEstimate, estimate
from setpoint.metrics.promise import PromiseLike, definition_of, required_share, within
from setpoint.metrics.table import ExchangeTable, Mask
from setpoint.metrics.trials import Trials
from setpoint.metrics.window import SteadyWindow


@dataclass(frozen=True, slots=True)
class Goodput:
    """What was served as promised.

    Attributes:
        per_s: Good exchanges done per second of the steady window; None without a window.
        attainment: Share of all measured exchanges that are good, with its interval.
        limits: The limits one exchange was held to, as (metric, limit in seconds).
    """

    per_s: float | None
    attainment: ShareEstimate
    limits: tuple[tuple[str, float], ...]


def exchange_limits(promises: Sequence[PromiseLike]) -> list[PromiseLike]:
    """The tightest latency promise of each metric and boundary: what one exchange is held to."""
    tightest: dict[str, PromiseLike] = {}
    for promise in promises:
        definition = definition_of(promise)
        if definition is None or promise.limit_s is None or definition.per == "task":
            continue  # a task is more than one exchange
        held = tightest.get(definition.name)
        if held is None or held.limit_s is None or promise.limit_s < held.limit_s:
            tightest[definition.name] = promise
    return list(tightest.values())


def good(promises: Sequence[PromiseLike], table: ExchangeTable) -> Mask:
    """Which exchanges are answered and within every limit.

    An exchange keeps an ITL limit when its own gap at the promised quantile does. Where a metric is not defined for
    an answer (ITL of a single chunk), its limit is not broken.
    """
    kept = table.answered.copy()
    for promise in exchange_limits(promises):
        definition = definition_of(promise)
        limit = promise.limit_s
        assert definition is not None
        assert limit is not None
        if definition.per == "gap":
            # The gap at the promised quantile is within the limit exactly when that share of the gaps is.
            kept &= table.gaps_at_most(limit) >= np.ceil(table.gaps * required_share(promise) - 1e-9)
        else:
            values = definition.values(table)
            kept &= np.isnan(values) | within(values, limit)
    return kept


def goodput(promises: Sequence[PromiseLike], table: ExchangeTable, window: SteadyWindow) -> Goodput:
    """Goodput over the steady window and attainment over all measured exchanges.

    Args:
        promises: The card's.
        table: Measured exchanges.
        window: From ``steady_window``.
    """
    mask = good(promises, table)
    one = np.ones(len(table), dtype=np.int64)
    trials = Trials(one, mask.astype(np.int64), table.cancelled.astype(np.int64), None, 0, "exchanges")
    per_s = None
    if window.length_s > 0:
        done_inside = (table.done_s >= window.start_s) & (table.done_s <= window.end_s)
        per_s = float((mask & done_inside).sum()) / window.length_s
    limits = []
    for promise in exchange_limits(promises):
        definition = definition_of(promise)
        assert definition is not None
        assert promise.limit_s is not None
        limits.append((definition.name, promise.limit_s))
    return Goodput(per_s, estimate(trials, table), tuple(limits))
