"""Each promise with its verdict, quality, and the certificate of the client: the fifth section."""

from collections.abc import Sequence

from setpoint.metrics.verdict import Origin, State
from setpoint.records.record import RunRecord
from setpoint.report.content import Block, Cell, Table, cells
from setpoint.report.quality import quality_blocks
from setpoint.report.step import Step
from setpoint.units import format_duration


def acceptance_blocks(steps: Sequence[Step], pivots: Sequence[Step], evaluations: Sequence[RunRecord]) -> list[Block]:
    """Criteria by area, what was graded, and whether the load generator can be believed."""
    rows = []
    for step in pivots:
        for verdict in step.verdicts:
            area = (
                "quality"
                if verdict.metric == "quality"
                else "reliability"
                if verdict.metric in ("answered", "availability")
                else "tail latency"
            )
            rows.append(
                cells([area, verdict.promise, step.words, Cell(verdict.state.value, verdict.state), verdict.reason])
            )
    areas = {row[0].text for row in rows}
    open_areas = (
        ("quality", "no promise in the card", "add `quality(core) >= 40%`"),
        ("reliability", "no promise in the card", "add `answered >= 99%`"),
        ("security", "no denial matrix was run", "probes of a gateway in front of the engine"),
        ("cost", "no price of this hardware is known", "a price per hour and the budget in the card's constraints"),
    )
    for area, why, what in open_areas:
        if area not in areas:
            rows.append(
                cells(
                    [
                        area,
                        "none measured",
                        "",
                        Cell(State.UNDECIDED.value, State.UNDECIDED),
                        f"{why}; {what} would decide it",
                    ]
                )
            )
    blocks: list[Block] = [
        Table(
            "Criteria and verdicts",
            ("area", "promise", "load", "verdict", "why"),
            tuple(rows),
            Origin.MEASURED,
            "run.json: verdicts",
        )
    ]
    own = [s.record for s in steps if s.record not in evaluations]
    blocks += quality_blocks([*evaluations, *own])
    blocks.append(_certificates(steps))
    return blocks


def _certificates(steps: Sequence[Step]) -> Table:
    """The client's own certificate, run by run: it is a suspect too."""
    rows = []
    for step in steps:
        c = step.client
        if not c:
            rows.append(
                cells([step.words, "unknown", "unknown", "unknown", "unknown", Cell("undecided", State.UNDECIDED)])
            )
            continue
        floor = c.get("floor") or {}
        good = bool(c.get("good"))
        verdict = Cell("good", State.MET) if good else Cell("; ".join(c.get("reasons", ())), State.MISSED)
        ttft = floor.get("ttft_p99_s")
        rows.append(
            cells(
                [
                    step.words,
                    _duration_or(c.get("lag_p99_s")),
                    f"{float(c.get('cpu_share', 0.0)):.1%}",
                    _duration_or(c.get("stall_max_s")),
                    _duration_or(ttft),
                    verdict,
                ]
            )
        )
    columns = ("load", "p99 lag of sends", "CPU of a core", "longest loop stall", "own TTFT floor, p99", "client")
    return Table(
        "The load generator's own certificate",
        columns,
        tuple(rows),
        Origin.MEASURED,
        "run.json: client",
        "A client that is the bottleneck makes a run undecided.",
    )


def _duration_or(value: object) -> str:
    return format_duration(value) if isinstance(value, int | float) else "unknown"
