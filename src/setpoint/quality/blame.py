"""From an exchange to a score, or to the reason why there is none; the model is blamed last.

What did not come through is unmeasured: the server was full, the connection broke, a limit passed, the request was
refused. What came through and is no proper answer (nothing visible, broken tool arguments) is wrong.
"""

import re
from dataclasses import dataclass

from setpoint.quality.graders.grader import CannotGrade
from setpoint.quality.graders.registry import grade
from setpoint.quality.task import Response, Task
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.quality import Blame

_LOST = frozenset({Outcome.REJECTED, Outcome.ERROR, Outcome.TIMEOUT, Outcome.TRUNCATED})
_MARKUP = re.compile(r"<\|\w+\|>|</?think>|</?tool_call>|\[TOOL_CALLS\]|<function=|\[/?INST\]")
_CALL_IN_TEXT = re.compile(r"\{\s*\"(?:name|function)\"\s*:.*\"(?:arguments|parameters)\"\s*:", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Marked:
    """What became of one answer.

    Attributes:
        score: 0 to 1; None when unmeasured.
        blame: Who to look at; None for a full score.
        reason: Why; None for a full score.
    """

    score: float | None
    blame: Blame | None
    reason: str | None


def mark(task: Task, row: Exchange, response: Response | None) -> Marked:
    """Scores an answer, or says why it cannot be.

    Args:
        task: What was asked.
        row: How the exchange went.
        response: What was received; None when nothing was kept.
    """
    outcome = row.outcome
    if outcome in _LOST or response is None:
        return Marked(None, Blame.INFRASTRUCTURE, f"{outcome}: {row.error or 'no answer'}")
    if outcome is Outcome.CANCELLED:
        return Marked(None, Blame.HARNESS, "ended by us")
    if outcome is Outcome.REFUSED:
        if row.status == 200:
            return Marked(0.0, Blame.MODEL, f"withheld: {row.error}")
        return Marked(None, Blame.HARNESS, f"the server does not take the request: {row.error}")
    if outcome is Outcome.MALFORMED:
        if response.calls:
            return Marked(0.0, Blame.PARSER, str(row.error))
        return Marked(None, Blame.INFRASTRUCTURE, f"malformed: {row.error}")
    if outcome is Outcome.EMPTY:
        made = row.completion_tokens or 0
        return Marked(0.0, Blame.PARSER if made > 2 else Blame.MODEL, f"nothing visible in {made} tokens")
    if outcome is Outcome.REASONING_EXHAUSTED:
        return Marked(0.0, Blame.MODEL, "all tokens were spent on reasoning")
    return _graded(task, row, response)


def _graded(task: Task, row: Exchange, response: Response) -> Marked:
    try:
        found = grade(task, response)
    except CannotGrade as error:
        return Marked(None, Blame.GRADER, str(error))
    if found.score == 1.0:
        return Marked(1.0, None, None)
    cut = f"; cut at {task.max_tokens} tokens" if row.outcome is Outcome.LENGTH else ""
    markup = _MARKUP.search(response.text) is not None
    call_as_text = bool(task.tools) and not response.calls and _CALL_IN_TEXT.search(response.text) is not None
    blame = Blame.PARSER if markup or call_as_text else Blame.MODEL
    return Marked(found.score, blame, f"{found.reason}{cut}")
