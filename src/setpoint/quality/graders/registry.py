"""Every grader. A new one is a file and a line here."""

from typing import Any

from pydantic import ValidationError

from setpoint.errors import SuiteError
from setpoint.quality.graders.code import CODE
from setpoint.quality.graders.exact import EXACT
from setpoint.quality.graders.grader import Grade, Grader, Parameters
from setpoint.quality.graders.json_schema import JSON_SCHEMA
from setpoint.quality.graders.needle import NEEDLE
from setpoint.quality.graders.numeric import NUMERIC
from setpoint.quality.graders.overlap import OVERLAP
from setpoint.quality.graders.pattern import REGEX
from setpoint.quality.graders.sequence import SEQUENCE
from setpoint.quality.graders.tool_call import TOOL_CALL
from setpoint.quality.task import Response, Task

GRADERS: dict[str, Grader[Any]] = {
    grader.name: grader for grader in (EXACT, NUMERIC, REGEX, JSON_SCHEMA, TOOL_CALL, CODE, NEEDLE, OVERLAP, SEQUENCE)
}


def parameters_of(task: Task, where: str) -> Parameters:
    """The task's parameters as its grader takes them.

    Args:
        task: The task.
        where: File and line, for the message.

    Raises:
        SuiteError: no such grader, or a parameter is wrong.
    """
    grader = GRADERS.get(task.grader.name)
    if grader is None:
        raise SuiteError(
            f"{where}: grader.name: found {task.grader.name!r}, expected one of {', '.join(GRADERS)}.",
        )
    try:
        parameters: Parameters = grader.parameters.model_validate(task.grader.parameters)
    except ValidationError as error:
        mistake = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(("grader", *(str(part) for part in mistake["loc"])))
        said = mistake["msg"].removeprefix("Value error, ")
        raise SuiteError(f"{where}: {field}: {said[:1].lower()}{said[1:]}.") from None
    return parameters


def grade(task: Task, response: Response) -> Grade:
    """The score of an answer to a task.

    Raises:
        CannotGrade: the grader failed, not the answer.
        SuiteError: the task's parameters are wrong.
    """
    return GRADERS[task.grader.name].grade(parameters_of(task, f"task {task.id}"), response)
