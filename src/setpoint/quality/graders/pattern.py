"""``regex``: the answer matches a regular expression."""

import re

from pydantic import field_validator

from setpoint.quality.graders.grader import FULL, Grade, Grader, Parameters
from setpoint.quality.task import Response


class Regex(Parameters):
    """Parameters.

    Attributes:
        pattern: Python regular expression.
        whole: It must match the whole answer, not a part of it.
        ignore_case: Case does not count.
    """

    pattern: str
    whole: bool = False
    ignore_case: bool = False

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"expected a regular expression: {error}") from None
        return pattern


def grade(parameters: Regex, response: Response) -> Grade:
    """1 or 0."""
    pattern = re.compile(parameters.pattern, re.IGNORECASE if parameters.ignore_case else 0)
    text = response.text.strip()
    found = pattern.fullmatch(text) if parameters.whole else pattern.search(text)
    return FULL if found else Grade(0.0, "no match")


REGEX = Grader("regex", Regex, grade)
