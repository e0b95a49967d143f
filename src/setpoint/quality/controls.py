"""Controls: a suite that cannot tell a right answer from a wrong one is refused.

Positive: every reference answer must score full. Negative: reference answers of *other* tasks, garbage, and the
task's own wrong answers must score near zero on average, and a task's own wrong answer never full. Beside them stands
what a parrot gets: the best score of one constant answer given to every task.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from setpoint.errors import SuiteError
from setpoint.quality.graders.grader import CannotGrade
from setpoint.quality.graders.registry import grade
from setpoint.quality.suite import Suite
from setpoint.quality.task import CallText, Reference, Response, Task

GARBAGE = ("I do not know.", "{}", "lorem ipsum dolor sit amet", "0")
MOST_NEGATIVE = 0.05  # mean score of wrong answers; above it a score says little
_PROVED: dict[str, "Controls"] = {}  # by digest: the same suite is proved once a process
SHIFTS = (1, 7)  # a task gets the references of the tasks this far behind it


@dataclass(frozen=True, slots=True)
class Controls:
    """What the controls of a suite came to.

    Attributes:
        positive: Mean score of the reference answers; 1 in a good suite.
        negative: Mean score of wrong answers.
        constant: Best mean score of one constant answer.
        faults: Why the suite is refused; empty when it is good.
    """

    positive: float
    negative: float
    constant: float
    faults: tuple[str, ...]


def response_of(reference: Reference) -> Response:
    """A reference as an answer that came from a server."""
    calls = tuple(CallText(c.name, msgspec.json.encode(c.arguments).decode()) for c in reference.calls)
    return Response(reference.text, calls)


def check_controls(suite: Suite) -> Controls:
    """Grades the controls of a suite.

    Raises:
        CannotGrade: a grader failed.
    """
    faults = []
    positive = [grade(task, response_of(task.reference)).score for task in suite.tasks]
    failed = [task.id for task, score in zip(suite.tasks, positive, strict=True) if score < 1.0]
    if failed:
        faults.append(f"reference answers do not score full: {_listed(failed)}")
    negative = [(task, grade(task, wrong).score) for task in suite.tasks for wrong in _wrong_answers(suite, task)]
    accepted = [task.id for task in suite.tasks if any(grade(task, response_of(w)).score == 1.0 for w in task.wrong)]
    if accepted:
        faults.append(f"answers that are listed as wrong score full: {_listed(accepted)}")
    mean = statistics.fmean(score for _, score in negative)
    if mean > MOST_NEGATIVE:
        by_task: dict[str, list[float]] = {}
        for task, score in negative:
            by_task.setdefault(task.id, []).append(score)
        worst = sorted(by_task, key=lambda name: -statistics.fmean(by_task[name]))
        faults.append(f"wrong answers score {mean:.0%}, allowed {MOST_NEGATIVE:.0%} (worst: {_listed(worst[:5])})")
    return Controls(statistics.fmean(positive), mean, _best_constant(suite), tuple(faults))


def demand_controls(suite: Suite) -> Controls:
    """The controls of a suite that can be believed.

    Raises:
        SuiteError: they fail, or a grader does.
    """
    if suite.digest in _PROVED:
        return _PROVED[suite.digest]
    try:
        controls = check_controls(suite)
    except CannotGrade as error:
        raise SuiteError(f"Suite {suite.name}: a grader cannot grade here: {error}.") from error
    if controls.faults:
        raise SuiteError(
            f"Suite {suite.name} is refused: {'; '.join(controls.faults)}.",
            fix="A score of it would mean nothing: correct the references or the graders.",
        )
    _PROVED[suite.digest] = controls
    return controls


def _wrong_answers(suite: Suite, task: Task) -> Iterator[Response]:
    """Garbage, the task's own wrong answers, and other tasks' references that are not this task's too."""
    own = response_of(task.reference)
    place = suite.tasks.index(task)
    for shift in SHIFTS:
        other = response_of(suite.tasks[(place - shift) % len(suite.tasks)].reference)
        if other != own:
            yield other
    yield from (response_of(wrong) for wrong in task.wrong)
    if task.grader.name == "code":
        yield Response(GARBAGE[0])  # one process a task is enough
        return
    for text in GARBAGE:
        if text.strip("{}") != own.text and not (text == "0" and own.text.strip() in ("0", "")):
            yield Response(text)


def _best_constant(suite: Suite) -> float:
    """Mean score when every task gets the same reference text, for the most frequent ones."""
    cheap = [task for task in suite.tasks if task.grader.name != "code"]
    counted: dict[str, int] = {}
    for task in cheap:
        counted[task.reference.text] = counted.get(task.reference.text, 0) + 1
    texts = sorted(counted, key=lambda text: -counted[text])[:3]
    scores = [sum(grade(task, Response(text)).score for task in cheap) / len(suite.tasks) for text in texts]
    return max(scores, default=0.0)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
