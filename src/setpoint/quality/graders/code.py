"""``code``: the answer's Python passes the task's assertions, in a process with limits."""

import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from pydantic import Field

from setpoint.quality.graders.grader import FULL, CannotGrade, Grade, Grader, Parameters
from setpoint.quality.task import Response

_FENCE = re.compile(r"```(?:python|py)?[^\S\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_CELL = Path(__file__).with_name("cell.py")


class Code(Parameters):
    """Parameters.

    Attributes:
        tests: Python that raises when the answer is wrong; runs after the answer, in the same module.
        time_s: Processor seconds allowed; twice as many on the clock.
        memory_bytes: Address space allowed.
    """

    tests: str = Field(min_length=1)
    time_s: int = Field(default=5, ge=1, le=60)
    memory_bytes: int = Field(default=512 * 2**20, ge=64 * 2**20)


def grade(parameters: Code, response: Response) -> Grade:
    """1 when all assertions hold; nothing else of what the process says is believed.

    The child announces success with a word that it is told on standard input and has forgotten before the answer's
    code runs; an answer that prints or exits proves nothing.
    """
    fences = _FENCE.findall(response.text)
    source = fences[-1] if fences else response.text
    word = secrets.token_hex(16)
    job = msgspec.json.encode(
        {
            "source": source,
            "tests": parameters.tests,
            "time_s": parameters.time_s,
            "memory_bytes": parameters.memory_bytes,
            "word": word,
        }
    )
    with tempfile.TemporaryDirectory(prefix="setpoint-cell-") as folder:
        try:
            done = subprocess.run(  # noqa: S603 - our own module; what it runs is confined there
                [sys.executable, "-I", "-S", str(_CELL)],
                input=job,
                capture_output=True,
                cwd=folder,
                env={},
                timeout=2 * parameters.time_s + 5,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return Grade(0.0, "does not end")
        except OSError as error:
            raise CannotGrade(f"the cell did not start: {error.strerror}") from error
    said = done.stdout.decode("utf-8", "replace").strip()
    if said == word:
        return FULL
    if done.returncode == 97:
        raise CannotGrade("the cell could not set its limits")
    reason = {"syntax": "not Python", "denied": "reaches outside its cell"}.get(said, "fails its tests")
    return Grade(0.0, reason)


CODE = Grader("code", Code, grade)
