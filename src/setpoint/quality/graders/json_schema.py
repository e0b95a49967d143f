"""``json_schema``: the answer is JSON that a schema accepts, with the expected values."""

import json
import re
from typing import Any

import jsonschema
from pydantic import Field, field_validator

from setpoint.quality.graders.grader import FULL, Grade, Grader, Parameters
from setpoint.quality.task import Response

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class JsonSchema(Parameters):
    """Parameters.

    Attributes:
        rule: The JSON Schema; written ``schema`` in a task.
        expected: Members of the object that must have these values; the score is the share that has.
        fenced: A fenced code block around the JSON is allowed.
    """

    rule: dict[str, Any] = Field(alias="schema")
    expected: dict[str, Any] = Field(default_factory=dict)
    fenced: bool = True

    @field_validator("rule")
    @classmethod
    def _is_schema(cls, rule: dict[str, Any]) -> dict[str, Any]:
        try:
            jsonschema.Draft202012Validator.check_schema(rule)
        except jsonschema.SchemaError as error:
            raise ValueError(f"expected a JSON Schema: {error.message}") from None
        return rule


def grade(parameters: JsonSchema, response: Response) -> Grade:
    """0 for no JSON or the wrong shape; else the share of expected members that are right."""
    text = response.text.strip()
    fence = _FENCE.search(text) if parameters.fenced else None
    try:
        found = json.loads(fence[1] if fence else text)
    except ValueError:
        return Grade(0.0, "not JSON")
    if not jsonschema.Draft202012Validator(parameters.rule).is_valid(found):
        return Grade(0.0, "JSON of another shape than the schema's")
    if not parameters.expected:
        return FULL
    if not isinstance(found, dict):
        return Grade(0.0, "not a JSON object")
    right = sum(name in found and found[name] == value for name, value in parameters.expected.items())
    share = right / len(parameters.expected)
    return FULL if share == 1.0 else Grade(share, "members with other values")


JSON_SCHEMA = Grader("json_schema", JsonSchema, grade)
