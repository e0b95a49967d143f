"""Pictures of a diagnosis: breaches by cause, and an end-to-end promise divided into parts."""

from collections.abc import Sequence

from setpoint.diagnosis.attribution import Attribution
from setpoint.diagnosis.budget import Budget
from setpoint.metrics.verdict import Origin
from setpoint.report.content import Figure
from setpoint.report.svg import Chart
from setpoint.units import format_duration

ROW = 44  # height of a row of bars
EDGES = 60  # above and below them


def attribution_bars(attribution: Sequence[Attribution], source: str) -> Figure | None:
    """A bar a promise: the breaches of its requests, each by the part that took the most time."""
    if not attribution:
        return None
    causes = list(dict.fromkeys(cause for a in attribution for cause, _ in a.causes))
    colour = {cause: "failed" if cause == "error" else f"bar {'abcdef'[i % 6]}" for i, cause in enumerate(causes)}
    rows = len(attribution)
    chart = Chart(
        "Breaches by cause",
        (0.0, 1.02),
        (0.0, float(rows)),
        "share of the requests that break the promise",
        "",
        x_text=lambda v: f"{v:.0%}",
        y_text=lambda _: "",
        height=EDGES + ROW * rows,
    )
    for i, one in enumerate(attribution):
        bottom = rows - i - 1
        chart.text((0.0, bottom + 0.62), f"{one.promise}: broken by {one.broken:,} of {one.exchanges:,}")
        at = 0.0
        for cause, count in one.causes:
            width = count / one.broken
            chart.bar((at, at + width), (bottom + 0.12, bottom + 0.52), colour[cause], f"{cause}: {count:,}")
            at += width
    for cause in causes:
        chart.legend(colour[cause], cause)
    caption = "Each breach counts once, for the part of its request that took the most time."
    return Figure("Breaches by cause", caption, chart.render(), source, Origin.COMPUTED)


def budget_waterfall(budget: Budget, source: str) -> Figure:
    """A row a part: what it is allowed, one after the other up to the limit, and what it took."""
    known = [line for line in budget.lines if line.allowed_s is not None]
    rows = len(budget.lines) + 1
    allowed = sum(max(line.allowed_s or 0.0, 0.0) for line in known)
    ends, at = [budget.limit_s, allowed + budget.reserve_s], 0.0
    for line in budget.lines:
        ends.append(at + (line.measured_s or 0.0))
        at += max(line.allowed_s or 0.0, 0.0)
    chart = Chart(
        "Latency budget",
        (0.0, max(ends) * 1.05),
        (0.0, float(rows)),
        "seconds",
        "",
        x_text=format_duration,
        y_text=lambda _: "",
        height=EDGES + ROW * rows,
    )
    chart.vertical(budget.limit_s, "limit", f"limit {format_duration(budget.limit_s)}")
    at = 0.0
    for i, line in enumerate(budget.lines):
        bottom = rows - i - 1
        granted = max(line.allowed_s or 0.0, 0.0)
        told = "allowance not known" if line.allowed_s is None else f"allowed {format_duration(granted)}"
        if line.measured_s is None:
            chart.text((0.0, bottom + 0.62), f"{line.part}: not measured")
            continue
        chart.text((0.0, bottom + 0.62), f"{line.part}: {told}, took {format_duration(line.measured_s)}")
        chart.bar((at, at + granted), (bottom + 0.32, bottom + 0.52), "wait", told)
        over = line.allowed_s is not None and line.measured_s > line.allowed_s
        css = "failed" if over else "stream"
        chart.bar((at, at + line.measured_s), (bottom + 0.1, bottom + 0.3), css, format_duration(line.measured_s))
        at += granted
    chart.text((0.0, 0.62), f"reserve for bursts: {format_duration(budget.reserve_s)}")
    chart.bar((at, at + budget.reserve_s), (0.32, 0.52), "wait", "reserve")
    for css, name in (("wait", "allowed"), ("stream", "took"), ("failed", "took more than allowed")):
        chart.legend(css, name)
    caption = (
        f"{budget.promise}, at its quantile. What is allowed follows one after the other up to the limit; what each part took "
        "begins where its allowance does. Parts at one quantile do not add up to the whole at it."
    )
    return Figure("Latency budget", caption, chart.render(), source, Origin.COMPUTED)
