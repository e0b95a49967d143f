"""``overlap``: the items of the answer against the expected set."""

import re

from pydantic import Field

from setpoint.quality.graders.exact import normal
from setpoint.quality.graders.grader import FULL, Grade, Grader, Parameters
from setpoint.quality.task import Response


class Overlap(Parameters):
    """Parameters.

    Attributes:
        expected: The items; order and case do not count.
        separator: Regular expression between the items of an answer.
    """

    expected: tuple[str, ...] = Field(min_length=1)
    separator: str = r"[,;\n]"


def grade(parameters: Overlap, response: Response) -> Grade:
    """F1: the harmonic mean of the shares of items that are right and of expected items that are there."""
    found = {normal(item) for item in re.split(parameters.separator, response.text)} - {""}
    expected = {normal(item) for item in parameters.expected}
    both = len(found & expected)
    score = 2 * both / (len(found) + len(expected))
    return FULL if score == 1.0 else Grade(score, "items missing or too many")


OVERLAP = Grader("overlap", Overlap, grade)
