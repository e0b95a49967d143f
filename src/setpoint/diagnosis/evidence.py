"""All that is known when hypotheses are examined: the subject, the other runs, and what follows from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from setpoint.diagnosis.interval import Interval, median_difference, ratio
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.parts import Part, Parts, split
from setpoint.diagnosis.service_model import ServiceModel, fit_service_model
from setpoint.diagnosis.symptoms import Symptom, symptoms_of
from setpoint.metrics.table import Floats

FEWEST_READINGS = 4
MODELLED = frozenset({
    Part.OVERHEAD, Part.PREFILL, Part.CACHE_MISS, Part.CONTENTION, Part.QUEUE, Part.STEP, Part.BATCH, Part.STALL,
    Part.STALL_PREFILL, Part.STALL_PREEMPTION,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the time of the exchanges that break a promise.

    Attributes:
        interval: The share.
        symptom: The promise.
        seconds: The same as mean seconds of a broken exchange.
    """

    interval: Interval
    symptom: Symptom
    seconds: float


@dataclass(frozen=True)
class Evidence:
    """One subject and its company.

    Attributes:
        subject: The run whose promises are to be explained.
        others: Other runs against the same target: other loads, probes.
    """

    subject: Observation
    others: tuple[Observation, ...] = ()

    @cached_property
    def model(self) -> ServiceModel:
        """The service model of the target."""
        return fit_service_model([self.subject, *self.others])

    @cached_property
    def parts(self) -> Parts:
        """The subject's time."""
        return self.parts_of(self.subject)

    @cached_property
    def symptoms(self) -> tuple[Symptom, ...]:
        """The subject's promises."""
        card = self.subject.card
        return () if card is None else symptoms_of(self.subject, card.promises)

    @property
    def broken(self) -> tuple[Symptom, ...]:
        """Promises that are missed, or lean there."""
        return tuple(s for s in self.symptoms if s.leaning)

    def parts_of(self, observation: Observation) -> Parts:
        """Another run's time under the same model."""
        return split(observation, self.model, None if self.upstream is None else max(self.upstream.value, 0.0))

    def probe(self, name: str) -> Observation | None:
        """The latest run of a probe; None when it was not run."""
        return next((o for o in reversed(self.others) if o.probe == name), None)

    @cached_property
    def upstream(self) -> Interval | None:
        """Seconds that a request spends before the engine hears of it.

        From the same prompts sent past the gateway; else, by Little's law, from the exchanges in flight that the
        engine neither runs nor has waiting. None when neither was observed.
        """
        through, direct = self.probe("prompt_ladder"), self.probe("direct")
        if through is not None and direct is not None:
            return median_difference(_waits(through), _waits(direct))
        return _upstream_by_count(self.subject)

    @property
    def upstream_is_direct(self) -> bool:
        """Whether ``upstream`` compares two paths, so that what both have (a round trip) is not in it."""
        return self.probe("prompt_ladder") is not None and self.probe("direct") is not None

    def share(self, parts: Iterable[Part], metrics: Iterable[str]) -> Share | None:
        """The largest share that these parts together have in a broken promise of these metrics.

        Time that the service model does not tell may belong to a part that follows from the model: it widens the
        interval upwards.
        """
        parts, metrics = tuple(parts), tuple(metrics)
        found = [x for x in (self._share(parts, s) for s in self.broken if s.metric in metrics) if x is not None]
        return max(found, key=lambda x: (x.interval.value, x.interval.high), default=None)

    def _share(self, parts: Sequence[Part], symptom: Symptom) -> Share | None:
        pair = self._times(parts, symptom)
        if pair is None:
            return None
        part, whole = pair
        broken = symptom.broken & self.parts.sampled
        found = ratio(part[broken], whole[broken])
        if found is None:
            return None
        if any(p in MODELLED for p in parts) and Part.UNKNOWN not in parts:
            with_unknown = self._share([*parts, Part.UNKNOWN], symptom)
            assert with_unknown is not None
            found = replace(found, high=max(found.high, with_unknown.interval.high))
        return Share(found, symptom, float(part[broken].mean()))

    def _times(self, parts: Sequence[Part], symptom: Symptom) -> tuple[Floats, Floats] | None:
        """Seconds of the parts, and of the whole that the promise limits, one an exchange."""
        table, time = self.subject.table, self.parts
        if symptom.metric == "ttft":
            seen = np.where(np.isnan(table.first_visible_s), table.done_s, table.first_visible_s)
            return self._first(parts), seen - table.scheduled_s
        if symptom.metric == "e2e":
            return self._first(parts) + self._stream(parts), table.done_s - table.scheduled_s
        if symptom.metric == "tpot":
            return self._stream(parts), self._per_exchange(time.gap_s)
        if symptom.metric == "itl" and symptom.limit_s is not None:  # only the gaps that break it
            long = (time.gap_s > symptom.limit_s).astype(np.float64)
            chosen = np.zeros(len(long))
            for part in parts:
                chosen += time.gaps.get(part, 0.0)
            return self._per_exchange(chosen * long), self._per_exchange(time.gap_s * long)
        return None

    def _per_exchange(self, of_gaps: Floats) -> Floats:
        rows = len(self.subject.table)
        return np.bincount(self.parts.gap_owner, weights=of_gaps, minlength=rows).astype(np.float64)

    def _first(self, parts: Sequence[Part]) -> Floats:
        total = np.zeros(len(self.subject.table))
        for part in parts:
            total += self.parts.first.get(part, 0.0)
        return total

    def _stream(self, parts: Sequence[Part]) -> Floats:
        total = np.zeros(len(self.subject.table))
        for part in parts:
            if part in self.parts.gaps:
                total += self.parts.of_stream(part)
        return total


def _waits(observation: Observation) -> Floats:
    return observation.wait_s[~np.isnan(observation.wait_s)]


def _upstream_by_count(observation: Observation) -> Interval | None:
    running, waiting = (observation.signals.get(n) for n in ("requests_running", "requests_waiting"))
    rate = observation.rate_per_s
    if running is None or waiting is None or not rate:
        return None
    times = np.intersect1d(running.times_s, waiting.times_s)
    times = times[(times >= observation.start_s) & (times <= observation.last_send_s)]
    if len(times) < FEWEST_READINGS:
        return None
    at = [r.values[np.searchsorted(r.times_s, times)] for r in (running, waiting)]
    outside = (observation.in_flight.at(times) - at[0] - at[1]) / rate
    middle, half = float(outside.mean()), 1.96 * float(outside.std(ddof=1)) / len(times) ** 0.5
    return Interval(middle, middle - half, middle + half, len(times))
