"""Checks that several hypotheses share: what engine, host and client said while the subject ran."""

import numpy as np

from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.parts import NO_WAITING, Part
from setpoint.diagnosis.standstill import SILENT_S
from setpoint.units import format_duration, format_number, format_share

WAITING = 0.5  # requests waiting on average: a queue stands
KV_FULL = 0.85  # mean usage
STARVED = 0.35  # of the engine's time without a CPU: nothing else can be judged
BUSY_CORE = 0.8  # of the time of a wait
IDLE_GPU = 0.5  # SM activity below which a GPU is likely not effective (DCGM, profiling metrics)
FEWEST_CLOCKED = 3  # lone requests with the server's own times
ACCEPTED = 0.5  # of drafted tokens; below, most of the drafting is thrown away


def waits(e: Evidence) -> Check:
    """Requests wait inside the engine, by its own count or because the wait goes away with the load."""
    waiting = e.subject.mean("requests_waiting")
    if waiting is not None:
        holds = True if waiting >= WAITING else False if waiting < NO_WAITING else None
        return Check(holds, f"the engine has {format_number(waiting)} requests waiting on average", needed=True)
    found = _queue_at_both_loads(e)
    if found is None:
        return Check(None, "whether requests wait inside the engine", needed=True)
    full_s, half_s = found
    words = (
        f"the wait beyond a request alone is {format_duration(full_s)}, and {format_duration(half_s)} at half the load"
    )
    return Check(half_s <= full_s / 2, words, needed=True)


def wait_falls(e: Evidence) -> Check:
    """Half the load takes away most of the wait."""
    found = _queue_at_both_loads(e)
    if found is None:
        return Check(None, "whether the wait goes away at half the load")
    full_s, half_s = found
    words = f"the wait beyond a request alone falls from {format_duration(full_s)} to {format_duration(half_s)} at half the load"
    return Check(half_s <= 0.7 * full_s, words)


def _queue_at_both_loads(e: Evidence) -> tuple[float, float] | None:
    """Mean wait beyond a request alone at the subject's load and at half of it; None without the probe."""
    half = e.probe("half_load")
    if half is None or not len(half.table) or not len(e.subject.table):
        return None
    full_s, half_s = (float(e.parts_of(o).first[Part.QUEUE].mean()) for o in (e.subject, half))
    return full_s, half_s


def preempts(e: Evidence) -> Check:
    """Running requests lose their place in the KV cache."""
    if e.subject.never_preempts:
        return Check(False, "this engine never preempts: requests that its KV cache cannot hold fail", needed=True)
    found = e.subject.growth("preemptions")
    if found is None:
        return Check(None, "whether the engine preempts", needed=True)
    return Check(found[0] > 0, f"{found[0]:.0f} preemptions in {format_duration(found[1])}", needed=True)


def no_preemption(e: Evidence) -> Check:
    """The opposite."""
    found = preempts(e)
    return Check(None if found.holds is None else not found.holds, found.words)


def shy(e: Evidence) -> bool | None:
    """Whether requests wait although memory and slots are free; None when it cannot be told."""
    waiting, usage = e.subject.mean("requests_waiting"), e.subject.mean("kv_usage")
    if waiting is not None and waiting < WAITING:
        return False
    slots, running = e.subject.slots, e.subject.peak("requests_running")
    if slots is not None and running is not None and running >= slots:
        return False
    if waiting is None or usage is None:
        return None
    if usage >= KV_FULL:
        return False
    return True if slots is not None and running is not None else None


def no_room(e: Evidence) -> Check:
    """What waits does so because slots or memory are full."""
    found = shy(e)
    return Check(None if found is None else not found, f"no request waits beside free memory and slots{_room(e)}")


def free_room(e: Evidence) -> Check:
    """What waits does so although slots and memory are free."""
    return Check(shy(e), f"requests wait beside free memory and slots{_room(e)}", needed=True)


def _room(e: Evidence) -> str:
    usage, running, slots = e.subject.mean("kv_usage"), e.subject.peak("requests_running"), e.subject.slots
    memory = "unknown" if usage is None else format_share(min(usage, 1.0))
    return f" (KV usage {memory}, at most {_count(running)} running, {_count(slots)} slots)"


def _count(value: float | None) -> str:
    return "an unknown number of" if value is None else f"{value:.0f}"


def silence_s(observation: Observation) -> float:
    """The longest time without a token for anybody while a request was open that never got one.

    By what clients saw: engines count tokens when a request ends, or count on while nothing is delivered.
    """
    table = observation.table
    spoken = np.sort(np.concatenate([table.first_token_s, table.last_token_s, observation.gap_ends_s]))
    spoken = spoken[~np.isnan(spoken)]
    longest = 0.0
    for row in np.flatnonzero(np.isnan(table.first_token_s) & ~np.isnan(table.sent_s)):
        sent, done = table.sent_s[row], table.done_s[row]
        inside = spoken[np.searchsorted(spoken, sent) : np.searchsorted(spoken, done)]
        longest = max(longest, float(np.diff(np.concatenate([[sent], inside, [done]])).max()))
    return longest


def generates(e: Evidence) -> Check:
    """Tokens flow as long as requests are open."""
    found = silence_s(e.subject)
    words = f"at most {format_duration(found)} without any token while a request was open that never got one"
    return Check(found < SILENT_S, words)


def starvation(observation: Observation) -> tuple[float, float] | None:
    """Cores that the engine uses, and cores that it was ready to use and did not get; None without readings."""
    used, waited = observation.growth("engine_cpu_time"), observation.growth("engine_cpu_wait")
    return None if used is None or waited is None else (used[0] / used[1], waited[0] / waited[1])


def starved_share(observation: Observation) -> float | None:
    """Share of time that the engine loses for want of CPU.

    Of the time in which it is ready to run, the part in which it does not; an engine that is ready for less than a core
    all together loses that much less.
    """
    found = starvation(observation)
    if found is None:
        return None
    used, waited = found
    ready = used + waited
    return waited / ready * min(ready, 1.0) if ready > 0 else 0.0


def gets_cpu(e: Evidence) -> Check:
    """Nobody takes the CPU from the engine."""
    found = starved_share(e.subject)
    if found is None:
        return Check(None, "whether the engine gets the CPU that it asks for")
    return Check(found < STARVED, f"the engine loses {found:.0%} of its time waiting for a CPU", spoils=True)


def host_share(e: Evidence) -> float | None:
    """Share of a lone request's wait that is CPU time of the engine's host side; None when it cannot be told.

    By the server's own clock, where it tells how long it computed the prompt: the host cannot have taken more than the
    rest of the wait, so that a small rest clears it, whatever computes. Else by the CPU time of the engine: where it is
    high it counts only beside an idle GPU, because an engine that computes on the CPU, or spins while it waits for the
    GPU, is busy without being the bottleneck.
    """
    ladder = e.probe("prompt_ladder")
    if ladder is None:
        return None
    rest = _outside_prefill(e, ladder)
    if rest is not None and rest < BUSY_CORE / 2:
        return rest
    if e.subject.computes_on_cpu:
        return None
    used = ladder.growth("engine_cpu_time")
    open_s = float((ladder.table.done_s - ladder.table.sent_s).sum())
    if used is None or not open_s > 0:
        return None
    share = min(used[0] / min(open_s, used[1]), 1.0)
    active = e.subject.mean("gpu_sm_active")
    if share < BUSY_CORE / 2:
        return share
    return None if active is None else 0.0 if active >= IDLE_GPU else share


def _outside_prefill(e: Evidence, ladder: Observation) -> float | None:
    """Share of lone requests' waits outside the server's own prefill and the way to it; None where it has no clock."""
    known = ladder.table.answered & ~np.isnan(ladder.server_prefill_s) & (ladder.wait_s > 0)
    if known.sum() < FEWEST_CLOCKED:
        return None
    upstream_s = 0.0 if e.upstream is None else max(e.upstream.value, 0.0)
    wait = ladder.wait_s[known]
    rest = np.maximum(wait - ladder.server_prefill_s[known] - upstream_s, 0.0)
    return float(rest.sum() / wait.sum())


def host_is_quick(e: Evidence) -> Check:
    """Tokenizing and the front end are not what takes the time."""
    found = host_share(e)
    if found is None:
        return Check(None, "how much of a lone request's wait is the host's CPU time")
    return Check(found < BUSY_CORE / 2, f"the host computes for at most {found:.0%} of the time of lone requests")


def late_ones_are_early(e: Evidence) -> bool | None:
    """Whether what breaks TTFT or E2E lies at the beginning of the run, and the rest is kept; None: too few."""
    for symptom in e.broken:
        if symptom.metric not in ("ttft", "e2e"):
            continue
        broken, count = symptom.broken, len(symptom.broken)
        if broken.sum() < 3 or count < 12:
            return None
        tail = broken[int(0.6 * count) :]
        head = broken[: max(int(0.6 * count), 1)]
        return bool(tail.mean() <= 0.1 and head.mean() >= 2 * max(float(tail.mean()), 0.05))
    return False


def not_only_at_the_start(e: Evidence) -> Check:
    """The wait does not end with the warm-up."""
    found = late_ones_are_early(e)
    return Check(
        None if found is None else not found, "requests are late throughout the run, not only at its beginning"
    )


def speculation_waste(observation: Observation) -> tuple[float, float] | None:
    """Acceptance rate, and the share of verified positions that is thrown away; None without speculation."""
    drafted, accepted = observation.growth("spec_drafted"), observation.growth("spec_accepted")
    generated = observation.growth("generation_tokens")
    if drafted is None or accepted is None or generated is None or drafted[0] <= 0:
        return None
    steps = max(generated[0] - accepted[0], 1.0)
    return accepted[0] / drafted[0], (drafted[0] - accepted[0]) / (drafted[0] + steps)


def speculation_pays(e: Evidence) -> Check:
    """What is drafted is mostly accepted, or nothing is drafted."""
    found = speculation_waste(e.subject)
    if found is None:
        return Check(None, "speculative decoding is not seen")
    return Check(found[0] >= ACCEPTED, f"{found[0]:.0%} of drafted tokens are accepted")


def step_alone(e: Evidence) -> tuple[float, float] | None:
    """Step of one stream at the subject's mean context, and the limit on it; None when either is unknown."""
    limits = [s.limit_s for s in e.broken if s.metric in ("tpot", "itl") and s.limit_s is not None]
    table = e.subject.table
    context = float((e.subject.prompt_tokens + table.output_tokens / 2).mean()) if len(table) else 0.0
    step = e.model.one_stream_s(np.array([context]))
    return None if step is None or not limits else (float(step[0]), min(limits))


def alone_breaks(e: Evidence) -> Check:
    """A stream without company breaks the pace, or takes most of an end-to-end limit."""
    found = step_alone(e)
    if found is not None:
        step_s, limit_s = found
        words = f"one stream alone takes {format_duration(step_s)} a step, promised {format_duration(limit_s)}"
        return Check(step_s > limit_s, words, needed=True)
    limits = [s.limit_s for s in e.broken if s.metric == "e2e" and s.limit_s is not None]
    if e.model.step_s is None or not limits:
        return Check(None, "what a decode step of one stream takes", needed=True)
    alone_s = float(e.parts.of_stream(Part.STEP).mean())
    words = f"decode alone takes {format_duration(alone_s)} of {format_duration(min(limits))} promised end to end"
    return Check(alone_s > min(limits) / 2, words, needed=True)
