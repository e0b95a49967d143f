"""``tool_call``: the right tools are called with the right arguments."""

import json
from typing import Any

from pydantic import Field

from setpoint.quality.graders.grader import FULL, Grade, Grader, Parameters
from setpoint.quality.task import CallText, Response


class Expected(Parameters):
    """One call.

    Attributes:
        name: Of the tool.
        arguments: All of them; a member ``{"any_of": [...]}`` takes any of the values. Texts are compared without case
            and outer spaces.
    """

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ToolCall(Parameters):
    """Parameters.

    Attributes:
        calls: What must be called, in any order; none means that nothing may be called.
    """

    calls: tuple[Expected, ...]


def grade(parameters: ToolCall, response: Response) -> Grade:
    """1 when each expected call was made once and no other."""
    if len(response.calls) != len(parameters.calls):
        return Grade(0.0, f"{len(response.calls)} tool calls, expected {len(parameters.calls)}")
    left = list(response.calls)
    for expected in parameters.calls:
        named = [call for call in left if call.name == expected.name]
        if not named:
            return Grade(0.0, "another tool")
        found = next((call for call in named if _right(expected, call)), None)
        if found is None:
            return Grade(0.0, "other arguments")
        left.remove(found)
    return FULL


def _right(expected: Expected, call: CallText) -> bool:
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError:
        return False
    if not isinstance(given, dict) or given.keys() != expected.arguments.keys():
        return False
    return all(_equal(value, given[name]) for name, value in expected.arguments.items())


def _equal(expected: object, given: object) -> bool:
    if isinstance(expected, dict) and expected.keys() == {"any_of"}:
        return any(_equal(one, given) for one in expected["any_of"])
    if isinstance(expected, str) and isinstance(given, str):
        return expected.strip().casefold() == given.strip().casefold()
    return expected == given and isinstance(expected, bool) == isinstance(given, bool)


TOOL_CALL = Grader("tool_call", ToolCall, grade)
