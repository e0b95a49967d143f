"""``exact``: the whole answer is one of the expected texts."""

import re

from setpoint.quality.graders.grader import FULL, Grade, Grader, Parameters
from setpoint.quality.task import Response

_WRAPPING = " \t\r\n\"'`*.,:;!?"


class Exact(Parameters):
    """Parameters.

    Attributes:
        expected: One text, or several of which any will do.
        strict: Byte for byte. Otherwise case, spaces between words, and quotes, marks and stops around the answer do
            not count.
    """

    expected: str | tuple[str, ...]
    strict: bool = False


def normal(text: str) -> str:
    """A text without what does not count."""
    return re.sub(r"\s+", " ", text).strip(_WRAPPING).casefold()


def grade(parameters: Exact, response: Response) -> Grade:
    """1 or 0."""
    expected = (parameters.expected,) if isinstance(parameters.expected, str) else parameters.expected
    same = (lambda text: text) if parameters.strict else normal
    return FULL if same(response.text) in {same(e) for e in expected} else Grade(0.0, "not the expected text")


EXACT = Grader("exact", Exact, grade)
