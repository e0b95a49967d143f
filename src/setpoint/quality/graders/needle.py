"""``needle``: the answer holds the one text that was hidden in a long prompt, and none of the decoys."""

from setpoint.quality.graders.grader import FULL, Grade, Grader, Parameters
from setpoint.quality.task import Response


class Needle(Parameters):
    """Parameters.

    Attributes:
        expected: The hidden text.
        decoys: Texts of the same kind in the prompt: an answer that recites them has found nothing.
    """

    expected: str
    decoys: tuple[str, ...] = ()


def grade(parameters: Needle, response: Response) -> Grade:
    """1 or 0."""
    text = response.text.casefold()
    if parameters.expected.casefold() not in text:
        return Grade(0.0, "the needle is not there")
    if any(decoy.casefold() in text for decoy in parameters.decoys):
        return Grade(0.0, "a decoy beside the needle")
    return FULL


NEEDLE = Grader("needle", Needle, grade)
