"""The main bottleneck hypothesis, by simple rules that are stated with it.

A hypothesis is a suspicion with its evidence and the probe that would refute it. Where the evidence does not tell
suspects apart, it says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from setpoint.metrics.verdict import State
from setpoint.report.step import Step
from setpoint.units import format_duration, format_number, format_share

RISE = 2.0  # a latency that doubles between two loads is called risen
STEADY = 1.5  # below this factor it is called unchanged


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A suspicion.

    Attributes:
        name: Key of the experiments that fit it.
        statement: In one sentence.
        evidence: Sentences with numbers.
        probe: What would refute it.
    """

    name: str
    statement: str
    evidence: tuple[str, ...]
    probe: str


def suspect(steps: Sequence[Step]) -> Hypothesis:
    """The main suspicion from the steps of a series, in order of load."""
    broken = next((s for s in steps if s.state is State.MISSED), None)
    if broken is None:
        return _nothing_broken(steps)
    if broken.client and not broken.client.get("good", True):
        return Hypothesis(
            "client",
            "The load generator, not the target, was the bottleneck.",
            tuple(str(r) for r in broken.client.get("reasons", ())),
            "Repeat the run with more --workers or on a machine of its own: the latencies should fall.",
        )
    summary = broken.summary
    failed = summary.exchanges - summary.answered
    if summary.exchanges and failed / summary.exchanges > 0.05:
        kinds = ", ".join(f"{n} {o}" for o, n in summary.outcomes.items() if n and o not in ("complete", "length"))
        return Hypothesis(
            "errors",
            "The target fails requests rather than serving them slowly.",
            (f"at {broken.words}: {format_share(failed / summary.exchanges)} failed ({kinds})",),
            "Repeat at half the load: if the failures stay, they do not come from load.",
        )
    calm = steps[0]
    if calm is broken:
        return _broken_from_the_start(broken)
    return _between(calm, broken)


def _nothing_broken(steps: Sequence[Step]) -> Hypothesis:
    return Hypothesis(
        "undecided",
        "Undecided: no load missed a promise for certain, so nothing has shown a limit.",
        tuple(f"at {s.words}: {s.state}" for s in steps[-3:]),
        "A higher load, or a longer run, shows what gives way first.",
    )


def _broken_from_the_start(step: Step) -> Hypothesis:
    ttft, gap = step.percentile("ttft", 0.5), step.percentile("tpot", 0.5)
    evidence = [f"the lowest load tried, {step.words}, misses: {_missed(step)}"]
    if ttft is not None:
        evidence.append(f"TTFT p50 there is {format_duration(ttft)}")
    if gap is not None:
        evidence.append(f"TPOT p50 there is {format_duration(gap)}")
    return Hypothesis(
        "undecided",
        "Undecided between a target that is too slow even alone and one that is overloaded already.",
        tuple(evidence),
        "One request at a time (--concurrency 1): if it keeps the promises, the load is the cause.",
    )


def _between(calm: Step, broken: Step) -> Hypothesis:
    """What rose between an easy load and the first that misses."""
    evidence, rise = [], {}
    for metric, title in (("ttft", "TTFT"), ("tpot", "TPOT")):
        before, after = calm.percentile(metric, 0.5), broken.percentile(metric, 0.5)
        if before and after:
            rise[metric] = after / before
            change = f"{format_duration(before)} at {calm.words} to {format_duration(after)} at {broken.words}"
            evidence.append(f"{title} p50 went from {change} ({format_number(after / before)} times)")
    waiting, running = broken.signal_mean("requests_waiting"), broken.signal_mean("requests_running")
    if waiting is not None:
        evidence.append(f"the engine reported {format_number(waiting)} requests waiting on average at {broken.words}")
    if running is not None:
        evidence.append(f"and {format_number(running)} running")
    if broken.summary.window.growing:
        evidence.append(f"in flight kept growing: {broken.summary.window.reason}")
    queue_seen = (waiting or 0.0) > 0.5 or broken.summary.window.growing
    ttft, tpot = rise.get("ttft", 1.0), rise.get("tpot", 1.0)
    if ttft >= RISE and queue_seen:
        return Hypothesis(
            "queueing",
            "Requests queue for capacity: they wait for a slot before their prefill begins.",
            tuple(evidence),
            "Halve the load: TTFT must fall to its level at low load. If it does not, prefill itself is slow.",
        )
    if tpot >= RISE and ttft < RISE:
        return Hypothesis(
            "decode-contention",
            "Streams slow each other down in decode: the batch is larger than the promised pace allows.",
            tuple(evidence),
            "Fewer streams at once with the same prompts: TPOT must fall. If it does not, decode alone is slow.",
        )
    if ttft >= RISE and tpot < STEADY:
        return Hypothesis(
            "prefill",
            "Prefill competes for compute: first tokens come later while the pace of streams stays.",
            tuple(evidence),
            "Shorter prompts at the same load: TTFT must fall in proportion.",
        )
    return Hypothesis(
        "undecided",
        "Undecided: the figures do not tell queueing, prefill and decode apart.",
        tuple(evidence) or (f"at {broken.words}: {_missed(broken)}",),
        "Ladders of prompt length and of concurrency, each alone, tell them apart.",
    )


def _missed(step: Step) -> str:
    return ", ".join(v.promise for v in step.verdicts if v.state is State.MISSED)
