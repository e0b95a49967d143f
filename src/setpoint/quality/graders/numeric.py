"""``numeric``: a number in the answer is the expected one."""

import math
import re
from typing import Literal

from setpoint.quality.graders.grader import FULL, Grade, Grader, Parameters
from setpoint.quality.task import Response

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Numeric(Parameters):
    """Parameters.

    Attributes:
        expected: The number.
        tolerance: Largest allowed distance from it.
        which: Which number of the answer counts: the last, the first, or ``only`` when it must be the only one.
    """

    expected: float
    tolerance: float = 0.0
    which: Literal["last", "first", "only"] = "last"


def grade(parameters: Numeric, response: Response) -> Grade:
    """1 or 0."""
    found = [float(n.replace(",", "")) for n in _NUMBER.findall(response.text.replace("−", "-"))]  # noqa: RUF001 - a minus sign
    if not found:
        return Grade(0.0, "no number")
    if parameters.which == "only" and len(found) > 1:
        return Grade(0.0, "more than one number")
    value = found[0] if parameters.which == "first" else found[-1]
    near = math.isclose(value, parameters.expected, rel_tol=1e-12, abs_tol=parameters.tolerance)
    return FULL if near else Grade(0.0, "another number")


NUMERIC = Grader("numeric", Numeric, grade)
