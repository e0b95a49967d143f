"""The error tree. A message says what was found, what was expected and what to do.

    SetpointError                exit 4
    ├── UsageError               exit 2: the command line or a file written by a person
    │   ├── CardError            a card, with file, field, found, expected
    │   ├── ModelSpecError       a model configuration, checkpoint header or GGUF file
    │   ├── SuiteError           a suite of tasks that cannot be read, or whose controls fail
    │   └── PinsDiffer           two runs that must not be compared
    ├── TranslationError         exit 4: a request or an answer that cannot be said in another dialect, with its field
    ├── TargetError              exit 4: the server under test (address, key, model name, TLS, protocol)
    ├── EngineError              exit 4: an engine that we start (missing, dies, never ready)
    └── RecordError              exit 4: a run record that cannot be written or read

Exit codes of the command line: 0 met, 1 missed, 2 usage, 3 undecided, 4 environment failure.
"""

from dataclasses import dataclass


class SetpointError(Exception):
    """Something a user must hear about, in one message without a traceback.

    Args:
        message: What was found and what was expected; one or two sentences.
        fix: What to do next, as an imperative sentence; empty when the message says it.
    """

    exit_code = 4

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".strip()


class UsageError(SetpointError):
    """The command line, or a file written by a person, is wrong."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a file.

    Attributes:
        file: Path as the user gave it.
        line: 1-based line, or None where the format has none.
        field: Dotted path of the field, e.g. ``promises[1].limit``.
        found: What stands there, shortened.
        expected: What may stand there.
    """

    file: str
    line: int | None
    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.field}: found {self.found}, expected {self.expected}"


class CardError(UsageError):
    """A card that cannot be used, with every mistake that was found."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        assert mistakes
        super().__init__("\n".join(str(m) for m in mistakes))
        self.mistakes = mistakes


class ModelSpecError(UsageError):
    """A model's configuration or checkpoint says something that is not understood."""


class SuiteError(UsageError):
    """A suite cannot be read, or its own controls show that its scores would mean nothing."""


class PinsDiffer(UsageError):  # noqa: N818 - the name states the fact that the user reads
    """Two runs differ in more than the variable under comparison."""


class TranslationError(SetpointError):
    """A request or an answer that is malformed, or that another dialect has no words for.

    Args:
        field: Dotted path of the field, e.g. ``messages[0].content[1].source``.
        message: What is wrong with it, without its value.
        fix: What to do next.
    """

    def __init__(self, field: str, message: str, *, fix: str = "") -> None:
        super().__init__(f"{field}: {message}", fix=fix)
        self.field = field


class TargetError(SetpointError):
    """The server under test cannot be used as asked."""


class EngineError(SetpointError):
    """An engine cannot be started, became unready, or died."""


class RecordError(SetpointError):
    """A run record cannot be written or read."""
