"""The service model of a target: what one request costs, and what company costs it.

    wait of a request alone    overhead + prefill · (prompt tokens not in the cache)
    one decode step            step + stream · (streams - 1) + context · (tokens before it)
    saving of the cache        seconds a cached prompt token spares

Fitted to exchanges that were alone while they waited, and to the pace of streams in the gaps in which nobody's prompt
was computed, by robust non-negative least squares: what prompts beside a stream cost is not what streams cost each
other. A coefficient that the runs do not determine (all prompts of one length, never two streams) is None.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from setpoint.diagnosis.concurrency import Concurrency
from setpoint.diagnosis.fit import fit
from setpoint.diagnosis.interval import Interval, median_difference
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probes.prefix_pair import PREFIX_PAIR, arms, unique_arm
from setpoint.metrics.table import Floats

APART = ("direct", "repeat")  # past the gateway; cold on purpose
FEWEST = 5
FEWEST_GAPS = 4
LEAST_SPREAD = 0.3  # of the largest: below, a slope is not told from an intercept
MOST_PACES = 4000  # exchanges of a run
STALL = 3.0  # a gap this many times the upper quartile is a stall, not the pace


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """What was fitted; None is not determined.

    Attributes:
        overhead_s: Of a request alone with an empty prompt, the first step included.
        prefill_s_per_token: Of a prompt token that is not cached.
        alone_s: Median wait of a request alone; stands in where the two above are not told apart.
        step_s: One decode step of one stream at an empty context.
        step_s_per_stream: Added by each further stream.
        step_s_per_context_token: Added by each token of context.
        cache_saving_s_per_token: What a cached prompt token spares, from shared against unique prompts.
        wait_residual: Median relative residual of the waits.
        step_residual: Of the steps.
        runs: What it was fitted to.
    """

    overhead_s: Interval | None
    prefill_s_per_token: Interval | None
    alone_s: Interval | None
    step_s: Interval | None
    step_s_per_stream: Interval | None
    step_s_per_context_token: Interval | None
    cache_saving_s_per_token: Interval | None
    wait_residual: float | None
    step_residual: float | None
    runs: tuple[str, ...]

    def wait_s(self, uncached_tokens: Floats) -> Floats | None:
        """Expected wait alone of prompts with so many tokens to compute; None when nobody was seen alone."""
        if self.overhead_s is not None and self.prefill_s_per_token is not None:
            return np.asarray(self.overhead_s.value + self.prefill_s_per_token.value * uncached_tokens)
        return None if self.alone_s is None else np.full(len(uncached_tokens), self.alone_s.value)

    def one_stream_s(self, context_tokens: Floats) -> Floats | None:
        """Expected step of one stream at these contexts; None when not determined."""
        if self.step_s is None:
            return None
        slope = 0.0 if self.step_s_per_context_token is None else self.step_s_per_context_token.value
        return np.asarray(self.step_s.value + slope * context_tokens)


def fit_service_model(observations: Sequence[Observation]) -> ServiceModel:
    """The model of the target that all these runs were made against."""
    through = [o for o in observations if o.probe not in APART]
    overhead, prefill, alone, wait_residual = _waits(through)
    step, stream, context, step_residual = _steps(through, prefill)
    return ServiceModel(
        overhead_s=overhead,
        prefill_s_per_token=prefill,
        alone_s=alone,
        step_s=step,
        step_s_per_stream=stream,
        step_s_per_context_token=context,
        cache_saving_s_per_token=_saving(through),
        wait_residual=wait_residual,
        step_residual=step_residual,
        runs=tuple(o.run for o in through),
    )


def _spreads(values: Floats) -> bool:
    low, high = np.quantile(values, (0.05, 0.95))
    return bool(high - low >= LEAST_SPREAD * high)


def _waits(
    observations: Sequence[Observation],
) -> tuple[Interval | None, Interval | None, Interval | None, float | None]:
    """Overhead, prefill, median alone, residual."""
    probes = [o for o in observations if o.probe is not None]
    for chosen in (probes, list(observations)):  # one stream on purpose before one stream by chance
        tokens, waits = _alone(chosen)
        if len(waits) >= FEWEST:
            break
    else:
        return None, None, None, None
    [middle], residual = fit(np.ones((len(waits), 1)), waits)
    if len(waits) <= FEWEST or not _spreads(tokens):
        return None, None, middle, residual
    [overhead, prefill], residual = fit(np.stack([np.ones(len(tokens)), tokens], axis=1), waits)
    return overhead, prefill, middle, residual


def _alone(observations: Sequence[Observation]) -> tuple[Floats, Floats]:
    tokens, waits = [np.zeros(0)], [np.zeros(0)]
    for o in observations:
        kept = o.alone & (o.wait_s > 0)  # whatever became of the answer after its first token
        if (
            o.probe == PREFIX_PAIR.name
        ):  # how much of a repeated prompt was computed is what the server said, or unknown
            kept &= unique_arm(o) | ~np.isnan(o.table.cached_tokens)
        tokens.append(o.uncached_tokens[kept])
        waits.append(o.wait_s[kept])
    return np.concatenate(tokens), np.concatenate(waits)


def prefills_of(observation: Observation, prefill_s: Floats | None) -> Concurrency:
    """Prompts under computation.

    Args:
        observation: The run.
        prefill_s: How long each takes alone, counted back from its first token; None: since it was sent. In company it
            takes longer, and before that it may have waited for a slot.
    """
    table = observation.table
    if prefill_s is None:
        return Concurrency(table.sent_s, table.first_token_s)
    return Concurrency(np.maximum(table.first_token_s - prefill_s, table.sent_s), table.first_token_s)


def pace_of(observation: Observation, prefills: Concurrency) -> Floats:
    """Seconds a token of an exchange's stream, stalls cut off, where no prompt was computed beside it.

    NaN with fewer than four such gaps. Of a long run some thousand exchanges, evenly spread.
    """
    table = observation.table
    pace = np.full(len(table), np.nan)
    rows = np.flatnonzero(table.answered & (table.gaps >= FEWEST_GAPS))
    for row in rows[:: max(len(rows) // MOST_PACES, 1)]:
        gaps = table.gap_s[table.gap_at[row] : table.gap_at[row] + table.gaps[row]].astype(np.float64)
        ends = table.first_visible_s[row] + np.cumsum(gaps)
        gaps = gaps[prefills.touching(ends - gaps, ends) == 0]
        if len(gaps) < FEWEST_GAPS:
            continue
        ceiling = STALL * float(np.quantile(gaps, 0.75)) + 0.005
        per_gap = max((table.output_tokens[row] - 1) / max(table.chunks[row] - 1, 1), 1.0)
        pace[row] = float(np.minimum(gaps, ceiling).mean()) / per_gap
    return pace


def _steps(
    observations: Sequence[Observation], prefill: Interval | None
) -> tuple[Interval | None, Interval | None, Interval | None, float | None]:
    """Step, per stream, per context token, residual."""
    others, context, pace = (np.zeros(0),) * 3
    for cost in (None, prefill):  # no gap in which anybody waited for a first token; else those in which few did
        others, context, pace = _paces(observations, cost)
        has_streams = len(pace) >= FEWEST and bool(np.ptp(np.quantile(others, (0.05, 0.95))) >= 1.0)
        if has_streams or prefill is None:
            break
    if len(pace) < FEWEST:
        return None, None, None, None
    if not has_streams:
        few = others < 0.25
        if few.sum() < FEWEST:
            return None, None, None, None
        others, context, pace = others[few], context[few], pace[few]
    has_context = _spreads(context)
    columns = [np.ones(len(pace))]
    if has_streams:
        columns.append(others)
    if has_context:
        columns.append(context)
    found, residual = fit(np.stack(columns, axis=1), pace)
    per_stream = found[1] if has_streams else None
    return found[0], per_stream, found[-1] if has_context else None, residual


def _paces(observations: Sequence[Observation], prefill: Interval | None) -> tuple[Floats, Floats, Floats]:
    """Other streams, tokens of context, and the pace of each stream that has one."""
    others, contexts, paces = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
    for o in observations:
        table = o.table
        pace = pace_of(o, prefills_of(o, None if prefill is None else prefill.value * o.uncached_tokens))
        kept = ~np.isnan(pace) & (table.last_token_s > table.first_token_s)
        first, last = table.first_token_s[kept], table.last_token_s[kept]
        others.append(np.maximum(o.streams.seconds(first, last) / (last - first) - 1, 0.0))
        contexts.append((o.prompt_tokens + table.output_tokens / 2)[kept])
        paces.append(pace[kept])
    return np.concatenate(others), np.concatenate(contexts), np.concatenate(paces)


def _saving(observations: Sequence[Observation]) -> Interval | None:
    for o in observations:
        if o.probe == PREFIX_PAIR.name:
            unique, shared, tokens = arms(o)
            found = median_difference(unique, shared)
            if found is not None and tokens > 0:
                return Interval(found.value / tokens, found.low / tokens, found.high / tokens, found.samples)
    return None
