"""What ``setpoint eval`` does with what it parsed."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from setpoint.assess.bench import Bench
from setpoint.assess.evaluation import evaluate_idle, evaluate_under_load, suites_of
from setpoint.assess.inspect import evaluate_inspect
from setpoint.assess.target import TargetOptions, open_target
from setpoint.cli import INTERRUPTED
from setpoint.cli.output import STATE_STYLE, emit_json, exit_code, stdout, table
from setpoint.cli.progress import Reporter
from setpoint.errors import UsageError
from setpoint.metrics.quality import SuiteScore, score_suites
from setpoint.metrics.verdict import State, Verdict
from setpoint.quality.compare import DELTA, Comparison, compare
from setpoint.quality.controls import Controls, check_controls
from setpoint.quality.distributions import floor_of
from setpoint.quality.questions import Keep, Sampling
from setpoint.quality.suite import Suite, load_suite
from setpoint.quality.task import Response
from setpoint.records.quality import QualityRow
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.report.quality import blame_counts
from setpoint.units import format_share
from setpoint.workload.card import Workload
from setpoint.workload.reading import load_card

SERVING, DISTRIBUTIONS = "serving", "distributions"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for; fields as the options of ``setpoint eval``."""

    card: Path | None
    target: TargetOptions
    suites: tuple[str, ...]
    inspect: str | None
    baseline: str | None
    variable: str | None
    delta: float | None
    under_load: bool
    duration_s: float | None
    epochs: int
    temperature: float
    concurrency: int
    answers: Path | None
    seed: int
    runs: Path
    json: bool


def place(words: Sequence[str], url: str | None) -> tuple[Path | None, str | None]:
    """Card and address from the argument and ``--url``.

    Raises:
        UsageError: more than one argument, or one that is neither.
    """
    if len(words) > 1:
        raise UsageError(f"eval takes one address or card; found {' '.join(words)}.")
    if not words:
        return None, url
    if words[0].startswith(("http://", "https://")):
        if url is not None:
            raise UsageError("The address is given twice: as argument and as --url.")
        return None, words[0]
    if not Path(words[0]).is_file():
        raise UsageError(f"{words[0]!r} is neither an address (http://...) nor a card that exists.")
    return Path(words[0]), url


def evaluate(request: Request) -> int:
    """Evaluates, prints, and returns the exit code."""
    card = None if request.card is None else load_card(request.card)
    suites, serving, distributions = _chosen(request, card)
    store = RunStore(request.runs)
    base = None if request.baseline is None else store.open(request.baseline)
    sampling = Sampling(
        epochs=request.epochs, temperature=request.temperature, seed=request.seed, concurrency=request.concurrency
    )
    interrupted = False
    with (
        Reporter(quiet=request.json) as reporter,
        _answers(request.answers) as keep,
        open_target(card, request.target, note=reporter.note, loading=reporter.loading) as opened,
    ):
        if request.under_load:
            assert card is not None
            assert request.card is not None
            bench = Bench(
                card=card, folder=str(request.card.parent), opened=opened, store=store, seed=request.seed,
                listen=reporter.run, note=reporter.note,
            )  # fmt: skip
            outcome = evaluate_under_load(bench, suites, sampling=sampling, duration_s=request.duration_s, keep=keep)
            record, interrupted = outcome.record, outcome.interrupted
        elif request.inspect is not None:
            record = evaluate_inspect(
                opened, store, request.inspect, sampling=sampling, card=card, note=reporter.note
            ).record
        else:
            record = evaluate_idle(
                opened, store, suites, sampling=sampling, card=card, serving=serving,
                distributions=distributions, heard=reporter.asked, note=reporter.note, keep=keep,
            ).record  # fmt: skip
    comparison = None
    if base is not None:
        comparison = compare(
            base, record, delta=DELTA if request.delta is None else request.delta, variable=request.variable
        )
    code = _show(record, comparison, json=request.json)
    return INTERRUPTED if interrupted else code


def compare_runs(words: Sequence[str], runs: Path, *, delta: float | None, variable: str | None, json: bool) -> int:
    """Compares two evaluations.

    Raises:
        UsageError: not two runs.
    """
    if len(words) != 2:
        raise UsageError(f"eval compare takes two runs, BASE and CANDIDATE; found {len(words)}.")
    store = RunStore(runs)
    base, candidate = (store.open(word) for word in words)
    found = compare(base, candidate, delta=DELTA if delta is None else delta, variable=variable)
    if json:
        emit_json(found)
    else:
        print_comparison(found)
    return exit_code(s.state for s in found.suites)


def check_suites(names: Sequence[str], *, json: bool) -> int:
    """The controls of suites, without a target: 0 when all hold, 1 when one fails.

    Raises:
        UsageError: no suite is named.
    """
    if not names:
        raise UsageError("eval check takes at least one suite.", fix="For example: setpoint eval check core")
    found: list[tuple[Suite, Controls]] = [(s, check_controls(s)) for s in map(load_suite, names)]
    if json:
        emit_json({s.name: {"tasks": len(s.tasks), "digest": s.digest, "controls": c} for s, c in found})
    else:
        rows = [
            (
                s.name, str(len(s.tasks)), format_share(c.positive), format_share(c.negative), format_share(c.constant),
                _coloured(State.MISSED, "; ".join(c.faults)) if c.faults else _coloured(State.MET, "good"),
            )
            for s, c in found
        ]  # fmt: skip
        stdout().print(
            table(("suite", "tasks", "references", "wrong answers", "best constant answer", "controls"), rows)
        )
    return 1 if any(c.faults for _, c in found) else 0


def _chosen(request: Request, card: Workload | None) -> tuple[list[Suite], bool, bool]:
    """Suites, whether serving checks, whether distributions: as named, else the card's, else core."""
    if request.under_load and card is None:
        raise UsageError("--under-load needs a card: its traffic is the load.")
    if request.duration_s is not None and not request.under_load:
        raise UsageError("--duration is for --under-load: without it the suite takes as long as it takes.")
    if request.inspect is not None:
        if request.suites or request.under_load or request.answers is not None:
            raise UsageError("--inspect stands alone: no --suite, --under-load or --answers beside it.")
        return [], False, False
    named = list(dict.fromkeys(request.suites))
    serving, distributions = SERVING in named, DISTRIBUTIONS in named
    if request.under_load and (serving or distributions):
        raise UsageError(f"{SERVING} and {DISTRIBUTIONS} are for an idle target.", fix="Leave --under-load away.")
    suites = [load_suite(name) for name in named if name not in (SERVING, DISTRIBUTIONS)]
    if not named:
        suites = suites_of(card, request.card.parent) if card is not None and request.card is not None else []
        suites = suites or [load_suite("core")]
    return suites, serving, distributions


@contextlib.contextmanager
def _answers(path: Path | None) -> Iterator[Keep | None]:
    """Writes answers to a file that the user named; nothing else ever holds them."""
    if path is None:
        yield None
        return
    try:
        file: IO[str] = path.open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {(error.strerror or 'no').lower()}.") from None

    def keep(row: QualityRow, response: Response | None) -> None:
        line = {"suite": row.suite, "task": row.task, "epoch": row.epoch, "score": row.score, "reason": row.reason}
        file.write(msgspec.json.encode(line | {"answer": response}).decode() + "\n")

    with file:
        yield keep


def _show(record: RunRecord, comparison: Comparison | None, *, json: bool) -> int:
    rows = record.quality()
    scores = score_suites(rows)
    verdicts = [msgspec.convert(v, Verdict) for v in record.meta.verdicts]
    facts: dict[str, Any] = record.meta.quality or {}
    findings = facts.get("serving", [])
    floor = floor_of(record.distributions())
    states = [v.state for v in verdicts] + [State(f["state"]) for f in findings if f["state"] == State.MISSED]
    if findings and not states:
        states = [State.MET]
    if comparison is not None:
        states += [s.state for s in comparison.suites]
    code = exit_code(states)
    if json:
        emit_json(
            {
                "run": record.id, "scores": scores, "verdicts": verdicts, "serving": findings,
                "blame": blame_counts(rows), "distributions_floor": floor, "comparison": comparison, "exit_code": code,
                "notes": record.meta.notes,
            }
        )  # fmt: skip
        return code
    out = stdout()
    if scores:
        out.print(table(("suite", "score", "95% interval", "measured", "epochs differ by"), map(_score_row, scores)))
        families = _families(record)
        out.print(table(("family", "score", "answers", "not right: look at"), families))
    if findings:
        shown = [(f["name"], _coloured(State(f["state"]), str(f["state"])), f["reason"]) for f in findings]
        out.print(table(("serving check", "verdict", "why"), shown))
    if floor is not None:
        itself = f"mean KL {floor.mean_kl:.2g}, same top {floor.same_top:.1%}"
        out.print(f"distributions: {floor.positions} places; against itself {itself}")
    for verdict in verdicts:
        out.print(f"{_coloured(verdict.state, verdict.state)} {verdict.promise}: {verdict.reason}", soft_wrap=True)
    for note in record.meta.notes:
        out.print(note, soft_wrap=True, markup=False)
    if comparison is not None:
        print_comparison(comparison)
    if not states:
        out.print("Nothing was promised: a card with `quality(core) >= 40%`, or --baseline, gives a verdict.")
    out.print(f"run: {record.id}", soft_wrap=True)
    return code


def _score_row(score: SuiteScore) -> tuple[str, ...]:
    known = score.low is not None and score.high is not None
    interval = f"{format_share(score.low or 0.0)} to {format_share(score.high or 0.0)}" if known else "unknown"
    return (
        score.suite,
        "unknown" if score.score is None else format_share(score.score),
        interval,
        f"{score.measured:,} of {score.planned:,}",
        "one epoch" if score.within_task is None else format_share(score.within_task),
    )


def _families(record: RunRecord) -> list[tuple[str, ...]]:
    out: list[tuple[str, ...]] = []
    for name, part in record.quality().sort("family").group_by("family", maintain_order=True):
        mean = part["score"].mean()
        blamed = ", ".join(f"{count} {who}" for who, count in blame_counts(part).items())
        out.append(
            (str(name[0]), format_share(mean) if isinstance(mean, float) else "unknown", f"{part.height}", blamed)
        )
    return out


def print_comparison(found: Comparison) -> None:
    """The tables of a comparison."""
    out = stdout()
    changed = "; ".join(map(str, found.changes)) or "nothing (A against A)"
    out.print(f"{found.candidate} against {found.base}. Changed: {changed}.", soft_wrap=True, markup=False)
    rows = [
        (
            s.suite, _coloured(s.state, str(s.state)), s.words, f"{s.better} better, {s.worse} worse of {s.tasks}",
            "unknown" if s.p_value is None else f"{s.p_value:.2g}",
            "unknown" if s.same_answers is None else format_share(s.same_answers),
        )
        for s in found.suites
    ]  # fmt: skip
    if rows:
        out.print(table(("suite", "verdict", "difference of scores", "tasks", "McNemar p", "same answers"), rows))
    if found.divergence is not None:
        d = found.divergence
        floor = "" if found.floor is None else f"; the base against itself {found.floor.mean_kl:.2g}"
        out.print(
            f"token distributions: mean KL {d.mean_kl:.2g} ({d.low:.2g} to {d.high:.2g}), p95 {d.p95_kl:.2g}, "
            f"same top {d.same_top:.1%}{floor}",
            soft_wrap=True,
        )  # fmt: skip
    if found.prompts_differ is not None:
        out.print("The rendered prompt " + ("differs." if found.prompts_differ else "is the same."))
    for name, before, after in found.checks:
        out.print(f"serving check {name}: {before} before, {after} now")


def _coloured(state: State, text: object) -> str:
    return f"[{STATE_STYLE[state]}]{text}[/]"
