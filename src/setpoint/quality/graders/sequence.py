"""``sequence``: how far a long answer follows the expected items before its first mistake."""

import re

from pydantic import Field

from setpoint.quality.graders.exact import normal
from setpoint.quality.graders.grader import FULL, Grade, Grader, Parameters
from setpoint.quality.task import Response


class Sequence(Parameters):
    """Parameters.

    Attributes:
        expected: The items in order.
        separator: Regular expression between the items of an answer.
    """

    expected: tuple[str, ...] = Field(min_length=1)
    separator: str = r"[\s,;]+"


def grade(parameters: Sequence, response: Response) -> Grade:
    """Share of the expected items that stand at their place before the first that does not.

    A fault that grows with the length of the answer (of a quantized KV cache, for instance) shows as a shorter share.
    """
    found = [item for item in map(normal, re.split(parameters.separator, response.text)) if item]
    expected = [normal(item) for item in parameters.expected]
    right = 0
    for one, other in zip(found, expected, strict=False):
        if one != other:
            break
        right += 1
    return FULL if right == len(expected) else Grade(right / len(expected), "leaves the sequence")


SEQUENCE = Grader("sequence", Sequence, grade)
