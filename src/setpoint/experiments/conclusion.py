"""Speed and answers together: a faster arm whose answers are worse has not won."""

from collections.abc import Sequence
from dataclasses import dataclass

from setpoint.experiments.analysis import Analysis
from setpoint.experiments.verdict import Judgement
from setpoint.metrics.verdict import State
from setpoint.quality.compare import Comparison


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Whether to make the change.

    Attributes:
        judgement: Better only where the answers are no worse, or cannot change.
        reason: In one sentence.
    """

    judgement: Judgement
    reason: str


def conclude(analysis: Analysis, quality: Sequence[Comparison], check: str | None) -> Conclusion:
    """The verdict on the change as a whole.

    Args:
        analysis: Of speed.
        quality: Of the answers, one comparison a way of asking; none where nothing was asked.
        check: What must be checked about the answers; None where they cannot change.
    """
    suites = [s for c in quality for s in c.suites]
    speed = f"{analysis.primary} {analysis.judgement}"
    worse = [s for s in suites if s.state is State.MISSED]
    if worse:
        found = "; ".join(f"{s.suite} {s.words}" for s in worse)
        return Conclusion(Judgement.WORSE, f"the answers are worse ({found}), whatever the speed ({speed})")
    if analysis.judgement is not Judgement.BETTER:
        return Conclusion(analysis.judgement, f"{speed}{_answers(quality)}")
    open_ = [s for s in suites if s.state is State.UNDECIDED]
    if open_:
        found = "; ".join(f"{s.suite} {s.words}" for s in open_)
        return Conclusion(Judgement.UNDECIDED, f"{speed}, and whether the answers are worse is not decided ({found})")
    if not suites and check is not None:
        return Conclusion(Judgement.UNDECIDED, f"{speed}, and the answers were not checked: {check} (--quality core)")
    return Conclusion(Judgement.BETTER, f"{speed}{_answers(quality) or ', and the answers do not depend on it'}")


def _answers(quality: Sequence[Comparison]) -> str:
    said = [f"{s.suite} {s.words}" for c in quality for s in c.suites]
    return f"; answers: {'; '.join(said)}" if said else ""
