"""The six sections."""

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.diagnosis.diagnosis import Diagnosis
from setpoint.experiments.plan import rank
from setpoint.metrics.summary import Distribution
from setpoint.metrics.verdict import Origin, State
from setpoint.records.record import RunRecord
from setpoint.report import charts
from setpoint.report.content import Block, Cell, Fact, Facts, Section, Table, Text, cells
from setpoint.report.hypothesis import hypothesis_blocks
from setpoint.report.plan import plan_facts
from setpoint.report.quality import quality_blocks
from setpoint.report.step import Step, one_per_load
from setpoint.units import format_duration, format_number, format_share

SHOWN_METRICS = ("ttft", "ttft_from_sent", "ttft_any_token", "itl", "stall", "tpot", "e2e", "user_speed")
QUANTILES = (0.5, 0.95, 0.99)


def all_sections(
    steps: Sequence[Step],
    pivots: Sequence[Step],
    found: Diagnosis,
    evaluations: Sequence[RunRecord] = (),
    plan: Mapping[str, Any] | None = None,
) -> tuple[Section, ...]:
    """The six, in order."""
    return (
        Section("Workload assumptions and what is not measured", tuple(_assumptions(steps, evaluations))),
        Section("Targets and baseline", (*_baseline(steps, pivots), *(() if plan is None else (plan_facts(plan),)))),
        Section("Main bottleneck hypothesis", tuple(hypothesis_blocks(found))),
        Section("Ranked experiments", tuple(_experiments(found, steps))),
        Section("Acceptance criteria", tuple(_acceptance(steps, pivots, evaluations))),
        Section("Vendors, models and versions", tuple(_versions(steps))),
    )


# 1


def _assumptions(steps: Sequence[Step], evaluations: Sequence[RunRecord]) -> list[Block]:
    last = steps[-1]
    card, meta = last.card, last.record.meta
    if card is None:
        return [Text("The record holds no card that this version can read.")]
    traffic = card.traffic
    facts = [
        Fact("unit of work", card.contract.unit, Origin.ASSUMED, "card: contract.unit"),
        Fact(
            "API",
            f"{card.contract.api}, {'streaming' if card.contract.streaming else 'not streaming'}",
            Origin.ASSUMED,
            "card: contract",
        ),
        Fact("arrivals", _arrivals(card.to_dict()["traffic"]["arrivals"]), Origin.ASSUMED, "card: traffic.arrivals"),
        Fact("prompt tokens", _spread(traffic.prompt_tokens), Origin.ASSUMED, "card: traffic.prompt_tokens"),
        Fact(
            "output tokens",
            f"{_spread(traffic.output_tokens)}; {meta.pins.get('output_lengths', 'unknown')}",
            Origin.ASSUMED,
            "card: traffic.output_tokens",
        ),
    ]
    tokens = last.summary.tokens
    if tokens.prompt_counted and tokens.prompt is not None:
        mean = tokens.prompt / tokens.prompt_counted
        facts.append(
            Fact(
                "prompt tokens, counted by the server",
                f"{format_number(mean)} on average",
                Origin.MEASURED,
                f"{last.record.id}: summary.tokens",
            )
        )
    if traffic.prefix is not None:
        facts.append(
            Fact(
                "shared prefix",
                f"{traffic.prefix.tokens} tokens, {traffic.prefix.groups} groups, {format_share(traffic.prefix.share)} of sessions",
                Origin.ASSUMED,
                "card: traffic.prefix",
            )
        )
    if tokens.cached is not None and tokens.prompt_of_cached:
        share = tokens.cached / tokens.prompt_of_cached
        facts.append(
            Fact(
                "prompt tokens from the target's cache",
                format_share(share),
                Origin.MEASURED,
                f"{last.record.id}: summary.tokens",
            )
        )
    blocks: list[Block] = [Facts("What was assumed", tuple(facts))]
    notes = list(
        dict.fromkeys(
            n for s in steps for n in s.record.meta.notes if not n.startswith(("Ended early", "The first request"))
        )
    )
    if notes:
        blocks.append(Text("Noted while measuring: " + " ".join(notes)))
    blocks.append(Text("Not measured: " + "; ".join(_not_measured(steps, evaluations)) + "."))
    return blocks


def _arrivals(arrivals: Mapping[str, Any]) -> str:
    process = str(arrivals["process"])
    per_second = ("rate", "start", "end")
    rest = ", ".join(
        (f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}") + ("/s" if k in per_second else "")
        for k, v in arrivals.items()
        if k != "process"
    )
    return f"{process} ({rest})"


def _spread(lengths: Any) -> str:  # noqa: ANN401 - any distribution
    if lengths.values:
        return f"{len(lengths.values)} observed values, mean {format_number(lengths.mean)}"
    if len(lengths.points) == 1:
        return f"{lengths.points[0][1]:g}"
    return ", ".join(f"{_name(share)} {value:g}" for share, value in lengths.points)


def _name(share: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(share, f"p{share * 100:g}")


def _not_measured(steps: Sequence[Step], evaluations: Sequence[RunRecord]) -> list[str]:
    graded = any(r.meta.quality is not None for r in (*evaluations, *(s.record for s in steps)))
    out = [
        *([] if graded else ["quality of the answers"]),
        "cost",
        "security",
        "recovery from failures",
        "the network between users and the target",
    ]
    signals = steps[-1].signals
    if not signals.is_empty():
        absent = sorted(set(signals["signal"]) - set(signals.drop_nulls("value")["signal"]))
        if absent:
            out.append(f"engine signals that the target does not report ({', '.join(absent)})")
    else:
        out.append("engine signals (none were read)")
    return out


# 2


def _baseline(steps: Sequence[Step], pivots: Sequence[Step]) -> list[Block]:
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


# 4


SHOWN_PROPOSALS = 6


def _experiments(found: Diagnosis, steps: Sequence[Step]) -> list[Block]:
    subject = next((s for s in steps if s.record.id == found.subject), steps[-1])
    proposals = rank(found, subject.record.meta.pins)
    rows = tuple(
        cells(
            [
                str(i),
                p.title if p.change is None else f"{p.title} ({p.change})",
                p.expected,
                p.price if p.quality_check == "none" else f"{p.price}. Check: {p.quality_check}",
                p.refuted_by,
            ]
        )
        for i, p in enumerate(proposals[:SHOWN_PROPOSALS], 1)
    )
    note = (
        "One variable at a time; a gain is an expectation to rank by, and believed when `setpoint experiment run` has"
        f" shown it. Sources: {'; '.join(dict.fromkeys(p.source for p in proposals[:SHOWN_PROPOSALS]))}."
    )
    names = ", ".join(f.name for f in found.supported) or "nothing supported yet"
    columns = ("", "change", "expected gain", "price", "would be refuted by")
    return [Table("What to try next", columns, rows, Origin.ASSUMED, f"playbook, ranked for {names}", note)]


# 5


def _acceptance(steps: Sequence[Step], pivots: Sequence[Step], evaluations: Sequence[RunRecord]) -> list[Block]:
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


# 6


def _versions(steps: Sequence[Step]) -> list[Block]:
    meta = steps[-1].record.meta
    pins, env = meta.pins, meta.environment
    date = meta.created[:10]
    source = f"{steps[-1].record.id}: pins"
    names = (
        ("engine", "engine"), ("engine version", "engine_version"), ("engine flags", "engine_flags"), ("model", "model"),
        ("model file", "model_file"), ("model revision", "model_revision"), ("model source", "model_source"),
        ("licence", "licence"), ("precision", "precision"), ("hardware of the engine", "hardware"),
        ("client version", "client_version"), ("card digest", "card_digest"), ("schedule digest", "schedule_digest"),
    )  # fmt: skip
    facts = [Fact(title, _pin(pins.get(key)), Origin.LOGGED, f"{source}.{key}, {date}") for title, key in names]
    machine = ", ".join(str(env[k]) for k in ("cpu_model", "os", "kernel", "python") if env.get(k))
    facts.append(
        Fact(
            "machine of the client", machine or "unknown", Origin.LOGGED, f"{steps[-1].record.id}: environment, {date}"
        )
    )
    return [Facts("As recorded with the runs", tuple(facts))]


def _pin(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return str(value)
