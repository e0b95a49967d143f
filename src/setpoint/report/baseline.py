"""The loads that were tried, in tables and pictures: the second section."""

from collections.abc import Sequence

from setpoint.metrics.summary import Distribution
from setpoint.metrics.verdict import Origin
from setpoint.report import charts
from setpoint.report.content import Block, Cell, Table, cells
from setpoint.report.step import Step, one_per_load
from setpoint.units import format_duration, format_number, format_share

SHOWN_METRICS = ("ttft", "ttft_from_sent", "ttft_any_token", "itl", "stall", "tpot", "e2e", "user_speed")
QUANTILES = (0.5, 0.95, 0.99)


def baseline_blocks(steps: Sequence[Step], pivots: Sequence[Step]) -> list[Block]:
    """All loads, then the latencies of those that the answer rests on."""
    blocks: list[Block] = []
    if len(steps) > 1:
        blocks.append(_load_table(steps))
    blocks += [f for f in (charts.goodput_curve(steps), charts.promise_curve(steps)) if f is not None]
    for step in pivots:
        blocks.append(_distribution_table(step))
    card = pivots[0].card
    compared = list(pivots) if len(pivots) > 1 else one_per_load(steps)[-3:]
    for metric in ("ttft", "itl", "tpot", "e2e"):
        promise = next((p for p in (card.promises if card else ()) if p.metric == metric), None)
        if metric in ("tpot", "e2e") and promise is None:
            continue
        limit, label = (promise.limit_s, promise.label) if promise is not None else (None, "")
        figure = charts.distribution_curves(compared, metric, limit, label)
        if figure is not None:
            blocks.append(figure)
    worst = pivots[-1]
    blocks += [f for f in (charts.in_flight(worst), charts.shares(worst), charts.timeline(worst)) if f is not None]
    return blocks


def _load_table(steps: Sequence[Step]) -> Table:
    rows = []
    for step in steps:
        summary = step.summary
        good = summary.goodput
        share = good.attainment.share
        rows.append(
            cells(
                [
                    step.words,
                    Cell(step.state.value, step.state),
                    "unknown" if good.per_s is None else f"{format_number(good.per_s)}/s",
                    "unknown" if share is None else format_share(share),
                    _duration(step.percentile("ttft", 0.5)),
                    _duration(step.percentile("ttft", 0.95)),
                    _duration(step.percentile("tpot", 0.5)),
                    f"{summary.exchanges:,}",
                    f"{summary.exchanges - summary.answered:,}",
                    step.record.id[-6:],
                ]
            )
        )
    columns = (
        "load",
        "verdict",
        "goodput",
        "attainment",
        "TTFT p50",
        "TTFT p95",
        "TPOT p50",
        "requests",
        "failed",
        "run",
    )
    note = "TTFT from the scheduled send to the first visible token. A run of a search ends early when its verdict is certain."
    return Table(
        "Every load that was tried", columns, tuple(rows), Origin.MEASURED, "run.json: summary, verdicts", note
    )


def _distribution_table(step: Step) -> Table:
    rows = []
    for name in SHOWN_METRICS:
        found = step.summary.distributions.get(name)
        if found is None or not found.samples:
            continue
        rows.append(
            cells(
                [
                    f"{found.title}",
                    *(_bounded(found, q) for q in QUANTILES),
                    _value(found.maximum, found.unit),
                    f"{found.samples:,}",
                    found.boundary,
                ]
            )
        )
    through = step.summary.throughput
    note = "In brackets: 95% interval from order statistics. Rates are of the whole system. "
    if through is not None:
        note += f"Throughput {format_number(through.requests_per_s)} answers/s, {format_number(through.output_tokens_per_s)} output tokens/s over the steady window. "
    note += step.summary.window.reason[:1].upper() + step.summary.window.reason[1:] + "."
    columns = ("metric", "p50", "p95", "p99", "max", "n", "boundary")
    return Table(
        f"Latencies at {step.words}",
        columns,
        tuple(rows),
        Origin.MEASURED,
        f"{step.record.id}: summary.distributions",
        note,
    )


def _bounded(found: Distribution, quantile: float) -> str:
    q = found.at(quantile)
    if q is None or q.value is None:
        needed = f" (needs {q.needed:,})" if q is not None else ""
        return f"n too small{needed}"
    if q.low is None or q.high is None:
        return _value(q.value, found.unit)
    return f"{_value(q.value, found.unit)} [{_value(q.low, found.unit)}, {_value(q.high, found.unit)}]"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "unknown"
    return format_duration(value) if unit == "s" else format_number(value)


def _duration(value: float | None) -> str:
    return "n too small" if value is None else format_duration(value)
