"""The machine is shared: other processes take the CPU that the engine needs."""

import numpy as np

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.interval import Interval
from setpoint.units import format_number


def _examine(e: Evidence) -> Examination:
    lost, cores = signs.starved_share(e.subject), signs.starvation(e.subject)
    if lost is None or cores is None:
        return Examination(
            None,
            (
                Check(
                    None,
                    "whether the engine gets the CPU that it asks for (its process is not on this machine, or unknown)",
                    needed=True,
                ),
            ),
        )
    used, waited = cores
    checks = [
        Check(
            lost >= 0.1,
            f"the engine's threads use {format_number(used)} cores and wait for {format_number(waited)} more",
            needed=True,
        )
    ]
    foreign = _foreign_cores(e)
    if foreign is None:
        checks.append(Check(None, "how much CPU others use", needed=True))
    else:
        checks.append(
            Check(
                foreign >= 0.25,
                f"processes that are neither engine nor client use {format_number(foreign)} of {e.subject.cores} cores",
                needed=True,
            )
        )
    worst = max(e.broken, key=lambda s: int(s.broken.sum()))
    count = int(worst.broken.sum())
    table = e.subject.table
    seconds = float((table.done_s - table.scheduled_s)[worst.broken].mean()) if count else 0.0
    margin = lost * 0.15  # the kernel's own accounting, sampled over the run
    return Examination(
        Share(Interval(lost, lost - margin, min(lost + margin, 1.0), count), worst, lost * seconds), tuple(checks)
    )


def _foreign_cores(e: Evidence) -> float | None:
    host, used = e.subject.mean("host_cpu"), e.subject.growth("engine_cpu_time")
    if host is None or used is None or e.subject.cores is None:
        return None
    client = float(e.subject.client.get("cpu_share", 0.0)) * float(e.subject.client.get("workers", 1))
    return float(np.maximum(host * e.subject.cores - used[0] / used[1] - client, 0.0))


NEIGHBOUR = Hypothesis(
    name="neighbour",
    title="Shared machine",
    statement="Other processes on the machine take the CPU that the engine needs.",
    metrics=("ttft", "tpot", "itl", "e2e"),
    probes=(),
    refutation="With the others stopped the latencies stay.",
    examine=_examine,
)
