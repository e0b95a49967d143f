"""What a grader is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from setpoint.quality.task import Response


class Parameters(BaseModel):
    """What a task tells its grader; unknown members are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


P = TypeVar("P", bound=Parameters)


class CannotGrade(Exception):  # noqa: N818 - the name states the fact
    """The grader itself failed: the answer is unmeasured, not wrong."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A score.

    Attributes:
        score: 0 to 1.
        reason: Why it is not full, without text of task or answer; empty when it is.
    """

    score: float
    reason: str = ""


FULL = Grade(1.0)


@dataclass(frozen=True, slots=True)
class Grader(Generic[P]):
    """A deterministic function from answer to score.

    Attributes:
        name: As tasks write it.
        parameters: What tasks must tell it.
        grade: The function. Raises ``CannotGrade`` when the fault is not the answer's.
    """

    name: str
    parameters: type[P]
    grade: Callable[[P, Response], Grade]
