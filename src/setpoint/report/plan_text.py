"""Plans, models and accelerators as text for a terminal; wide tables become lists on a narrow one."""

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from setpoint.models.resolve import Model
from setpoint.report.plan_document import KEPT_AT, layer_kinds
from setpoint.sizing.calibration import Calibration
from setpoint.sizing.kept import kept_bytes
from setpoint.sizing.overheads import GIB
from setpoint.sizing.placement import Placement, Plan
from setpoint.sizing.plan import MemoryPlan
from setpoint.sizing.term import Range, Term
from setpoint.units import format_bytes, format_duration, format_number, format_share

STYLE = {"met": "green", "missed": "red", "undecided": "yellow"}
NARROW = 150
_EXAMPLES = 6


def render_plan(plan: Plan, *, width: int, top: int) -> RenderableType:
    """The answer, the best placements, the best one in full, and what was rejected."""
    return Group(*_plan(plan, width, top))


def _plan(plan: Plan, width: int, top: int) -> Iterator[RenderableType]:
    yield Text(headline(plan), style=f"bold {STYLE[plan.state]}")
    yield Text("")
    shown = plan.placements[:top]
    if shown:
        yield _wide(shown) if width >= NARROW and plan.question.need is not None else _listed(shown)
        if len(plan.placements) > len(shown):
            yield Text(f"and {len(plan.placements) - len(shown):,} more: --top or --json shows them", style="dim")
        yield Text("")
        yield from _detail(shown[0])
    if plan.rejected:
        yield Text("rejected", style="bold")
        yield from (Text(f"  {line}") for line in _rejections(plan))
        yield Text("")
    for note in plan.notes:
        yield Text(f"assumed: {note}", style="dim")


def headline(plan: Plan) -> str:
    """The answer in one sentence."""
    q, name = plan.question, plan.question.model.spec.name or plan.question.model.spec.model_type
    if not plan.placements:
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in plan.why_not().most_common(3))
        what = "keeps the card's promises and constraints" if q.need is not None else "holds it"
        return f"{name}: no placement {what}; rejected for {kinds}."
    best = plan.placements[0]
    if q.need is None:
        fits = "fits" if best.state == "met" else "may fit"
        return f"{name} {fits} on {best.candidate}."
    money = "" if best.money is None else f", {dollars(best.money.per_unit)} USD per {q.need.unit}"
    count = f"{best.replicas} replica{'s' if best.replicas != 1 else ''}"
    verdict = "keeps every promise that a plan can check" if best.state == "met" else "may keep the promises"
    return f"{name} on {best.candidate} {verdict}: {count}{money}."


def _wide(shown: tuple[Placement, ...]) -> Table:
    table = _table(("placement", "verdict", *(name for name, _ in _figures(shown[0]))))
    for one in shown:
        table.add_row(str(one.candidate), Text(one.state, style=STYLE[one.state]), *(v for _, v in _figures(one)))
    return table


def _listed(shown: tuple[Placement, ...]) -> Group:
    parts: list[RenderableType] = []
    for number, one in enumerate(shown, 1):
        head = Text.assemble((f"{number}. {one.candidate}  ", "bold"), (one.state, STYLE[one.state]))
        parts.append(head)
        if one.capacity is not None:
            parts.append(Text("   " + "; ".join(f"{name} {value}" for name, value in _figures(one) if value)))
    return Group(*parts)


def _figures(one: Placement) -> list[tuple[str, str]]:
    at, money, longest = one.estimate, one.money, one.memory.sessions[-1]
    return [
        ("replicas", str(one.replicas or "")),
        (f"sessions of {longest.context:,}", span(longest.count, whole=True)),
        ("TTFT", "none" if at is None else seconds(at.ttft_s)),
        ("TPOT", "none" if at is None else seconds(at.tpot_s)),
        ("goodput/s", "" if one.capacity is None else span(one.capacity.requests_per_s)),
        ("USD/h", "no price" if money is None else dollars(money.per_hour)),
        ("USD/Mtok", "" if money is None else dollars(money.per_million_tokens)),
        ("USD/unit", "" if money is None else dollars(money.per_unit)),
    ]


def _detail(one: Placement) -> Iterator[RenderableType]:
    yield Text(f"{one.candidate}", style="bold")
    yield memory_table(one.memory)
    yield sessions_table(one.memory)
    at, money = one.estimate, one.money
    if at is not None:
        cover = "no measured row is like it" if at.coverage is None else f"held for {format_share(at.coverage)} of rows"
        yield Text(f"TTFT {seconds(at.ttft_s)} and TPOT {seconds(at.tpot_s)} on average (computed; {cover})")
    if money is not None:
        full, paid = format_number(money.per_million_tokens_full), format_share(money.utilization)
        yield Text(f"one accelerator: {dollars(money.price)} USD an hour (asked by: {money.sellers})")
        yield Text(f"{paid} of what is paid delivers; at full load {full} USD per million tokens")
        if money.hosted_per_hour is not None:
            even = money.break_even_requests_per_s
            words = "never" if even is None else f"from {format_number(even)} requests/s on"
            yield Text(f"hosted: {format_number(money.hosted_per_hour)} USD an hour; own serving is no dearer {words}")
    yield Text(f"limited by {one.limited_by}")
    for sentence in one.fails_when:
        yield Text(f"fails: {sentence}")
    for finding in one.findings:
        yield Text.assemble((f"{finding.name} {finding.state}: ", STYLE[finding.state]), finding.reason)
    for note in one.notes:
        yield Text(f"note: {note}", style="dim")
    yield Text("")


def memory_table(memory: MemoryPlan) -> Table:
    """Term by term, of one rank."""
    table = _table(("GiB a rank", "", "origin"))
    for term in memory.terms:
        table.add_row(*_term(term))
    table.add_row("cache (what is left)", gib(memory.kv), "computed")
    table.add_row("budget", f"{memory.budget_bytes / GIB:.2f}", "computed")
    for term in memory.outside:
        table.add_row(*_term(term, " (outside the budget)"))
    return table


def _term(term: Term, suffix: str = "") -> tuple[str, str, str]:
    return term.name + suffix, gib(term.size), term.origin


def sessions_table(memory: MemoryPlan) -> Table:
    """Context length by sessions."""
    table = _table(("context tokens", "sessions"))
    for one in memory.sessions:
        limit = "" if one.limit == "memory" else " (max_num_seqs)"
        table.add_row(f"{one.context:,}", span(one.count, whole=True) + limit)
    return table


def render_contexts(plan: Plan, *, width: int, top: int) -> RenderableType:
    """Without a card: context length by sessions, a column a placement."""
    return Group(*_contexts(plan, width, top))


def _contexts(plan: Plan, width: int, top: int) -> Iterator[RenderableType]:
    yield Text(headline(plan), style=f"bold {STYLE[plan.state]}")
    yield Text("")
    shown = plan.placements[:top]
    for number in range(0, len(shown), max(1, (width - 16) // 26)):
        part = shown[number : number + max(1, (width - 16) // 26)]
        table = _table(("context tokens", *(str(one.candidate) for one in part)))
        for row, sessions in enumerate(part[0].memory.sessions):
            table.add_row(f"{sessions.context:,}", *(span(one.memory.sessions[row].count, whole=True) for one in part))
        yield table
        yield Text("")
    if shown:
        yield Text(f"memory of {shown[0].candidate}", style="bold")
        yield memory_table(shown[0].memory)
        for reason in shown[0].memory.reasons:
            yield Text(f"fails: {reason}")
        for note in shown[0].notes:
            yield Text(f"note: {note}", style="dim")
    if len(plan.placements) > len(shown):
        yield Text(f"and {len(plan.placements) - len(shown):,} more placements: --top or --json", style="dim")
    for line in _rejections(plan):
        yield Text(f"rejected: {line}")
    for note in plan.notes:
        yield Text(f"assumed: {note}", style="dim")


def _rejections(plan: Plan) -> list[str]:
    """One line a kind, with an example."""
    lines = []
    for kind, count in plan.why_not().most_common(_EXAMPLES):
        example = next(r for r in plan.rejected if r.kind == kind)
        lines.append(f"{kind} ({count:,}), e.g. {example.candidate}: {example.reason}")
    return lines


def render_calibration(found: Calibration) -> RenderableType:
    """The terms that a log stated."""
    table = _table(("GiB a rank", "", "from the log"))
    for term in found.terms:
        table.add_row(term.name, f"{term.size.expected / GIB:.2f}", term.basis)
    if found.kv_bytes is not None:
        table.add_row("cache", f"{found.kv_bytes / GIB:.2f}", "as printed")
    notes = [Text(f"note: {note}", style="dim") for note in found.notes]
    return Group(Text(f"{found.engine.label}, {found.tp or 1} tensor-parallel ranks", style="bold"), table, *notes)


def render_model(model: Model) -> RenderableType:
    """What a model is."""
    spec = model.spec
    kv = spec.precision.kv or spec.activation_dtype
    rows = [
        ("type", f"{spec.model_type}, {spec.architecture or 'class not stated'}"),
        ("parameters", f"{spec.parameters / 1e9:.2f}B, {spec.active_parameters / 1e9:.2f}B active"),
        (
            "weights",
            f"{format_bytes(spec.checkpoint_bytes)} ({spec.precision.quantized.name}, {spec.precision.method})",
        ),
        ("longest context", f"{spec.max_positions:,}" if spec.max_positions else "not stated"),
        ("cache", "; ".join(f"{n // 1024}k: {format_bytes(kept_bytes(spec, n, kv))}" for n in KEPT_AT) + f" ({kv})"),
    ]
    if model.checkpoint is not None:
        kinds = ", ".join(f"{name} {format_bytes(size)}" for name, size in model.checkpoint.items())
        rows.insert(3, ("checkpoint", kinds))
    rows += [("layers", f"{kind['count']} x {kind['mixer']}; {kind['feed_forward']}") for kind in layer_kinds(model)]
    if spec.mtp_layers:
        rows.append(("draft layers", str(len(spec.mtp_layers))))
    rows += [
        (tower.kind, f"{tower.parameters / 1e9:.2f}B{'' if tower.exact else ' (assumed)'}") for tower in spec.towers
    ]
    licence = model.licence
    rows += [
        (
            "licence",
            "not known: no model card" if licence is None else f"{licence.name}; commercial: {licence.commercial}",
        ),
        ("chat template", {True: "yes", False: "no", None: "not known"}[model.chat_template]),
        ("tool parser", model.parsers.tools or "none known"),
        ("reasoning parser", model.parsers.reasoning or "none known"),
    ]
    if licence is not None and licence.limit:
        rows.append(("licence limit", licence.limit))
    table = _table(("", ""), header=False)
    for row in rows:
        table.add_row(*row)
    notes = [Text(f"assumed: {note}", style="dim") for note in spec.notes]
    return Group(Text(spec.name or spec.model_type, style="bold"), table, *notes)


def gib(size: Range) -> str:
    """``12.34 (11.90 to 13.01)``."""
    text = f"{size.expected / GIB:.2f}"
    return text if size.low == size.high else f"{text} ({size.low / GIB:.2f} to {size.high / GIB:.2f})"


def span(found: Range, *, whole: bool = False) -> str:
    """``31 (24 to 40)``."""
    low, expected, high = (
        (f"{v:,.0f}" if whole else format_number(v)) if math.isfinite(v) else "∞"
        for v in (found.low, found.expected, found.high)
    )
    return expected if low == high else f"{expected} ({low} to {high})"


def seconds(found: Range) -> str:
    """``80 ms (61 to 104 ms)``."""
    low, expected, high = (format_duration(v) for v in (found.low, found.expected, found.high))
    return f"{expected} ({low} to {high})"


def dollars(found: Range) -> str:
    """US dollars with a range; open where no load keeps the promises."""
    return span(found)


def _table(columns: tuple[str, ...], *, header: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=header)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
