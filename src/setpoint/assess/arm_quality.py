"""The answers of both arms of an experiment, asked on engines of their own and compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from setpoint.assess.arms import Arms, Checks
from setpoint.assess.bench import Bench
from setpoint.assess.evaluation import evaluate_idle, evaluate_under_load
from setpoint.assess.target import OpenTarget
from setpoint.experiments.agreement import Agreement, Key, agreement
from setpoint.experiments.change import Change
from setpoint.experiments.record import QualityRun
from setpoint.quality.compare import Comparison, compare
from setpoint.quality.questions import Sampling
from setpoint.quality.task import Response
from setpoint.records.meta import Series
from setpoint.records.quality import QualityRow
from setpoint.records.record import RunRecord

DISTRIBUTIONS, SUITES = "distributions", "suites"
LONGEST_S = 600.0  # of the load beside the questions; it ends with the last of them, and an overloaded arm never would
IDLE_STREAMS = 2


@dataclass(slots=True)
class ArmQuality:
    """Asks both arms and compares what they say.

    Attributes:
        arms: The arms.
        checks: What to ask.
        changes: Of the second arm.
        series: Of the experiment's runs.
        made: Told of every evaluation that is done.
        done: Evaluations that exist.
    """

    arms: Arms
    checks: Checks
    changes: Sequence[Change]
    series: str
    made: Callable[[QualityRun], None]
    done: list[QualityRun]
    texts: dict[str, dict[Key, str]] = field(default_factory=lambda: {"A": {}, "B": {}})
    interrupted: bool = False

    def compare(self) -> list[Comparison]:
        """The comparisons, one a kind; evaluations that exist are not made again.

        Raises:
            PinsDiffer: the arms differ in more than one variable.
        """
        kinds = [DISTRIBUTIONS] if self.checks.distributions else []
        kinds += [SUITES] if self.checks.suites else []
        found = []
        for kind in kinds:
            records = [self._record(arm, kind) for arm in ("A", "B")]
            if self.interrupted:
                break
            base, candidate = records
            assert base is not None
            assert candidate is not None
            if kind == DISTRIBUTIONS and any(r.distributions().is_empty() for r in (base, candidate)):
                self.arms.note("one of the targets gives no log-probabilities: its distributions are not compared")
                continue
            found.append(compare(base, candidate, delta=self.checks.delta, variable=self._variable()))
        return found

    @property
    def agreement(self) -> Agreement | None:
        """How far the texts agree; None where the arms were asked at different times."""
        return agreement(self.texts["A"], self.texts["B"])

    def _variable(self) -> str | None:
        if self.arms.candidate is not None:
            return self.arms.candidate.variable
        return self.changes[0].pin if len(self.changes) == 1 else "engine_flags"

    def _record(self, arm: str, kind: str) -> RunRecord | None:
        known = next((r.run for r in self.done if (r.arm, r.kind) == (arm, kind)), None)
        if known is not None:
            return self.arms.store.open(known)
        if self.interrupted:
            return None
        arms = self.arms
        arms.note(f"asking {arm} ({kind})")
        with arms.opened(arm, self.changes if arm == "B" else ()) as opened:
            record = self._distributions(opened) if kind == DISTRIBUTIONS else self._suites(opened, arm)
        if not self.interrupted:
            self.made(QualityRun(run=record.id, arm=arm, kind=kind))
        return record

    def _distributions(self, opened: OpenTarget) -> RunRecord:
        place = Series(id=self.series, kind="experiment", step=len(self.done))
        return evaluate_idle(opened, self.arms.store, [], distributions=True, series=place).record

    def _suites(self, opened: OpenTarget, arm: str) -> RunRecord:
        arms, suites = self.arms, self.checks.suites
        texts: dict[Key, str] = {}

        def keep(row: QualityRow, response: Response | None) -> None:
            if response is not None and row.score is not None:
                texts[row.suite, row.task, row.epoch] = response.text

        if self.checks.idle:
            drawn = Sampling(epochs=self.checks.epochs, seed=arms.seed, concurrency=IDLE_STREAMS)
            record = evaluate_idle(opened, arms.store, suites, sampling=drawn, keep=keep).record
        else:
            drawn = Sampling(epochs=self.checks.epochs, seed=arms.seed, concurrency=1)
            card = arms.card_of(self.changes if arm == "B" else ())
            bench = Bench(
                card=card, folder=arms.folder, opened=opened, store=arms.store, seed=arms.seed, workers=arms.workers,
                listen=arms.listen,
            )  # fmt: skip
            outcome = evaluate_under_load(
                bench, suites, sampling=drawn, rate_per_s=arms.rate_per_s, users=arms.users, duration_s=LONGEST_S,
                keep=keep,
            )  # fmt: skip
            record, self.interrupted = outcome.record, outcome.interrupted
        self.texts[arm] = texts
        return record
