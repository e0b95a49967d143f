"""The pictures of a report."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from setpoint.metrics.summary import Distribution
from setpoint.metrics.verdict import State
from setpoint.report.content import Figure
from setpoint.report.step import Step, one_per_load
from setpoint.report.svg import Chart, covering
from setpoint.units import format_duration, format_number, format_share

SHAPES = {State.MET: "circle", State.MISSED: "diamond", State.UNDECIDED: "square"}
TIMELINE_ROWS = 48
MOST_POINTS = 400
SHOWN_SIGNALS = ("requests_running", "requests_waiting", "kv_usage")


def goodput_curve(steps: Sequence[Step]) -> Figure | None:
    """Goodput against offered load: on the diagonal everything is served as promised."""
    if len(steps) < 2:
        return None
    points = [(s.load, s.summary.goodput.per_s, s) for s in steps if s.summary.goodput.per_s is not None]
    through = {s.record.id for s in one_per_load(steps)}
    if not points:
        return None
    closed = steps[0].closed
    top = max(1e-9, *(y for _, y, _ in points))
    x_label = "users" if closed else "offered load, requests/s"
    chart = Chart(
        "Goodput by load",
        covering([x for x, _, _ in points], from_zero=True),
        covering([top], from_zero=True),
        x_label,
        "goodput, requests/s",
    )
    if not closed:
        end = min(chart.x[1], chart.y[1])
        chart.line([(0, 0), (end, end)], "ideal", name="all of the load within every promise")
    chart.line([(x, y) for x, y, s in points if s.record.id in through], "a", name="goodput")
    for x, y, step in points:
        chart.mark(
            (x, y), step.state.value, f"{step.words}: goodput {format_number(y)}/s, {step.state}", SHAPES[step.state]
        )
    for state in State:
        if any(s.state is state for s in steps):
            chart.legend(state.value, state.value)
    return Figure(
        "Goodput by load",
        "Answers per second that keep every limit, at each load that was tried.",
        chart.render(),
        _source(steps, "summary.goodput"),
    )


def promise_curve(steps: Sequence[Step]) -> Figure | None:
    """Share within the limit of each promise against load, with what was promised."""
    steps = one_per_load(steps)
    if len(steps) < 2 or not steps[0].verdicts:
        return None
    x_label = "users" if steps[0].closed else "offered load, requests/s"
    lows = [v.low for s in steps for v in s.verdicts if v.low is not None]
    floor = min([*lows, *(v.required for v in steps[0].verdicts)], default=0.0)
    y = (max(0.0, min(floor - 0.05, 0.9)), 1.02)
    chart = Chart(
        "Promises by load",
        covering([s.load for s in steps], from_zero=True),
        y,
        x_label,
        "share of requests within the limit",
        y_text=lambda v: f"{v:.0%}",
    )
    for i, promise in enumerate(v.promise for v in steps[0].verdicts):
        css = "abcdef"[i % 6]
        line, required = [], None
        for step in steps:
            verdict = next((v for v in step.verdicts if v.promise == promise), None)
            if verdict is None or verdict.share is None:
                continue
            required = verdict.required
            line.append((step.load, verdict.share, verdict))
        if required is None:
            continue
        chart.horizontal(
            required,
            css,
            f"{format_share(required)} promised" if i == 0 or required != steps[0].verdicts[0].required else "",
        )
        chart.line([(x, share) for x, share, _ in line], css, name=promise)
        for x, share, verdict in line:
            if verdict.low is not None and verdict.high is not None:
                chart.line([(x, max(verdict.low, y[0])), (x, verdict.high)], f"{css} thin")
            chart.mark(
                (x, max(share, y[0])),
                f"{css} {verdict.state.value}-edge",
                f"{promise}: {format_share(share)}, {verdict.state}",
                SHAPES[verdict.state],
            )
    return Figure(
        "Promises by load",
        "Each mark is a run, the longest at its load; the vertical line through it is the 95% interval. Circle met, diamond missed, square undecided.",
        chart.render(),
        _source(steps, "verdicts"),
    )


def distribution_curves(steps: Sequence[Step], metric: str, limit_s: float | None, limit_label: str) -> Figure | None:
    """Cumulative distributions of a latency on a logarithmic axis, a line a load, with p50 and p95 marked."""
    drawn = [(s, s.summary.distributions.get(metric)) for s in steps]
    some = [(s, d) for s, d in drawn if d is not None and d.histogram.edges]
    if not some:
        return None
    title = some[0][1].title
    low = min(d.histogram.edges[0] for _, d in some)
    high = max(d.histogram.edges[-1] for _, d in some)
    if limit_s is not None:
        low, high = min(low, limit_s * 0.8), max(high, limit_s * 1.2)
    chart = Chart(
        f"{title} distribution",
        (low, high),
        (0.0, 1.0),
        f"{title} ({some[0][1].boundary})",
        "share at or below",
        log_x=True,
        x_text=format_duration,
        y_text=lambda v: f"{v:.0%}",
    )
    if limit_s is not None:
        chart.vertical(limit_s, "limit", limit_label)
    for i, (step, distribution) in enumerate(some):
        css = "abcdef"[i % 6]
        chart.line(_cumulative(distribution), css, name=f"{step.words} ({step.state})", step=True)
        for quantile in (0.5, 0.95):
            found = distribution.at(quantile)
            if found is not None and found.value:
                chart.mark(
                    (found.value, quantile), css, f"{step.words}: p{quantile * 100:g} {format_duration(found.value)}"
                )
    caption = f"{some[0][1].title} of answered requests. Marks: p50 and p95, where the sample bounds them."
    if metric == "itl":
        caption = "Gaps between visible chunks, all of them, not averaged: a stall is a step at the right. Marks: p50 and p95."
    return Figure(f"{title} distribution", caption, chart.render(), _source(steps, f"summary.distributions.{metric}"))


def _cumulative(distribution: Distribution) -> list[tuple[float, float]]:
    counts = np.cumsum(distribution.histogram.counts) + distribution.histogram.not_positive
    total = max(float(counts[-1]), 1.0)
    edges = distribution.histogram.edges
    first = distribution.histogram.not_positive / total
    return [(edges[0], first), *((edge, float(count) / total) for edge, count in zip(edges[1:], counts, strict=True))]


def timeline(step: Step) -> Figure | None:
    """Some consecutive requests: how long each waited, and when it streamed; stalls stand out."""
    columns = ["index", "warmup", "scheduled_s", "first_visible_s", "last_token_s", "done_s", "outcome", "chunk_s"]
    frame = step.record.exchanges(columns).filter(~pl.col("warmup")).sort("scheduled_s")
    if frame.is_empty():
        return None
    start = max(0, (len(frame) - TIMELINE_ROWS) // 2)
    rows = frame.slice(start, TIMELINE_ROWS).to_dicts()
    begin = min(r["scheduled_s"] for r in rows)
    end = max(r["done_s"] for r in rows)
    height = 70 + 9 * len(rows)
    chart = Chart(
        "Timeline of requests",
        (begin, end),
        (0.0, float(len(rows))),
        "seconds since the start of the run",
        "requests",
        y_text=lambda _: "",
        height=height,
    )
    for i, row in enumerate(rows):
        top = len(rows) - i
        y = (top - 0.85, top - 0.15)
        first, last = row["first_visible_s"], row["last_token_s"]
        waited = first if first is not None else row["done_s"]
        chart.bar(
            (row["scheduled_s"], waited),
            y,
            "wait",
            f"request {row['index']}: waited {format_duration(waited - row['scheduled_s'])}",
        )
        if first is not None and last is not None:
            chart.bar(
                (first, max(last, first)),
                y,
                "stream",
                f"request {row['index']}: streamed {format_duration(last - first)}, {row['outcome']}",
            )
            for gap_start, gap_end in _stalls(row["chunk_s"]):
                chart.bar((gap_start, gap_end), y, "stall", f"silent for {format_duration(gap_end - gap_start)}")
        if row["outcome"] not in ("complete", "length"):
            chart.bar((row["done_s"] - (end - begin) * 0.004, row["done_s"]), y, "failed", str(row["outcome"]))
    for css, name in (
        ("wait", "waiting for the first token"),
        ("stream", "streaming"),
        ("stall", "silent in between"),
        ("failed", "failed"),
    ):
        chart.legend(css, name)
    shown = f"{len(rows)} consecutive requests of {len(frame):,} at {step.words}"
    return Figure(
        "Timeline of requests",
        f"{shown}. A silence is marked when it is five times the answer's median gap.",
        chart.render(),
        f"{step.record.id}: exchanges.parquet",
    )


def _stalls(chunks: Sequence[float]) -> list[tuple[float, float]]:
    if len(chunks) < 4:
        return []
    gaps = np.diff(chunks)
    limit = max(5 * float(np.median(gaps)), 0.05)
    return [(chunks[i], chunks[i + 1]) for i in np.flatnonzero(gaps > limit).tolist()]


def in_flight(step: Step) -> Figure | None:
    """Requests in flight as the client saw them, and the engine's own signals where it has them."""
    frame = step.record.exchanges(["scheduled_s", "done_s", "warmup"]).filter(~pl.col("warmup"))
    if len(frame) < 2:
        return None
    begun, done = np.sort(frame["scheduled_s"].to_numpy()), np.sort(frame["done_s"].to_numpy())
    times = np.linspace(float(begun[0]), float(done[-1]), MOST_POINTS)
    numbers = np.searchsorted(begun, times, side="right") - np.searchsorted(done, times, side="right")
    signals = step.signals
    lines = []
    for name in SHOWN_SIGNALS[:2]:
        readings = signals.filter(pl.col("signal") == name)
        if readings["value"].drop_nulls().is_empty():
            continue
        lines.append(
            (name, [(t, v) if v is not None else None for t, v in readings.select("time_s", "value").iter_rows()])
        )
    top = max([float(numbers.max()), *(p[1] for _, line in lines for p in line if p is not None)])
    chart = Chart(
        "In flight",
        (float(times[0]), float(times[-1])),
        covering([top], from_zero=True),
        "seconds since the start of the run",
        "requests",
    )
    chart.line(zip(times.tolist(), numbers.tolist(), strict=True), "a", name="in flight (client)", step=True)
    for (name, line), css in zip(lines, "bc", strict=False):
        inside = [p if p is None or times[0] <= p[0] <= times[-1] else None for p in line]
        chart.line(inside, css, name=f"{name.replace('_', ' ')} (engine)", step=True)
    missing = [n for n in SHOWN_SIGNALS if n not in [name for name, _ in lines] and n != "kv_usage"]
    note = f" Not reported by the engine: {', '.join(missing)}." if missing else ""
    return Figure(
        "Requests over time",
        f"At {step.words}. A gap in an engine line is a reading that failed, not zero.{note}",
        chart.render(),
        f"{step.record.id}: exchanges.parquet, signals.parquet",
    )


def shares(step: Step) -> Figure | None:
    """Signals that are a share of something: the KV cache, the machine's cores."""
    chart_top = 1.0
    lines = []
    for name, title in (("kv_usage", "KV cache in use (engine)"), ("host_cpu", "CPU of the client's machine")):
        readings = step.signals.filter(pl.col("signal") == name)
        values = [(t, v) if v is not None else None for t, v in readings.select("time_s", "value").iter_rows()]
        if any(values):
            lines.append((title, values))
    times = [p[0] for _, line in lines for p in line if p is not None]
    if len(times) < 2 or max(times) <= min(times):
        return None
    chart = Chart(
        "Shares in use",
        (min(times), max(times)),
        (0.0, chart_top * 1.02),
        "seconds since the start of the run",
        "share in use",
        y_text=lambda v: f"{v:.0%}",
        height=220,
    )
    for (title, line), css in zip(lines, "de", strict=False):
        chart.line(line, css, name=title, step=True)
    return Figure(
        "Cache and machine over time", f"At {step.words}.", chart.render(), f"{step.record.id}: signals.parquet"
    )


def _source(steps: Sequence[Step], field: str) -> str:
    return f"run.json: {field} of {', '.join(s.record.id[-6:] for s in steps)}"
