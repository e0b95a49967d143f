"""Logs of Inspect AI (``inspect eval --log-format json``) as graded rows, so that its tasks stand before our gate.

Inspect leaves samples that failed out of its metrics: a run in which 5 of 20 requests failed reports an accuracy of
1.000. Here every sample of the task has its row, and one without a score is unmeasured and counts against coverage.
The controls of such a task are not known: it has no reference answers that could be graded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from setpoint.errors import UsageError
from setpoint.records.exchange import Outcome
from setpoint.records.quality import Blame, QualityRow

LOG_VERSION = 2
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
REQUIRED_COVERAGE = 0.95
_FIRST = re.compile(r"\W*(\w+)")
_CAUSE = re.compile(r"raised (\w+)")  # what a retry gave up on
_CODE = re.compile(r"[Ee]rror code: (\d{3})")


class _Dataset(msgspec.Struct):
    name: str | None = None
    samples: int | None = None
    sample_ids: list[str | int] | None = None


class _Config(msgspec.Struct):
    epochs: int | None = None
    limit: Any = None


class _Eval(msgspec.Struct):
    task: str
    dataset: _Dataset
    config: _Config
    model: str
    task_version: str | int = 0
    packages: dict[str, str] = {}


class _Message(msgspec.Struct):
    content: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    stop_reason: str | None = None


class _Usage(msgspec.Struct):
    output_tokens: int | None = None


class _Output(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


class _Score(msgspec.Struct):
    value: Any


class _Error(msgspec.Struct):
    message: str = ""


class _Sample(msgspec.Struct):
    id: str | int
    epoch: int
    output: _Output = msgspec.field(default_factory=_Output)
    scores: dict[str, _Score] | None = None
    error: _Error | None = None


class _Log(msgspec.Struct):
    version: int
    status: str
    eval: _Eval
    samples: list[_Sample] | None = None


@dataclass(frozen=True, slots=True)
class InspectLog:
    """What a run of Inspect came to.

    Attributes:
        task: Its name, without the package.
        digest: SHA-256 of task, version, data set and sample ids: two scores are comparable when it is equal.
        status: As Inspect says: ``success``, ``error``, ``cancelled``.
        version: Of Inspect; None when the log does not say.
        scorer: The scorer whose scores are taken: the first; None where nothing was scored.
        rows: One a sample and epoch, those that are missing included.
        notes: Sentences for the record.
    """

    task: str
    digest: str
    status: str
    version: str | None
    scorer: str | None
    rows: tuple[QualityRow, ...]
    notes: tuple[str, ...]


def read_log(content: bytes, file: str) -> InspectLog:
    """Reads a JSON log.

    Args:
        content: Of the file.
        file: Its name, for messages.

    Raises:
        UsageError: it is no such log, or of another version.
    """
    try:
        log = msgspec.json.decode(content, type=_Log)
    except msgspec.DecodeError as error:
        raise UsageError(f"{file} is no log of Inspect: {error}.", fix="Write it with --log-format json.") from None
    if log.version != LOG_VERSION:
        raise UsageError(f"{file} is a log of version {log.version}; version {LOG_VERSION} is read.")
    samples = {(str(s.id), s.epoch): s for s in log.samples or ()}
    ids = [str(i) for i in log.eval.dataset.sample_ids or ()] or list(dict.fromkeys(k for k, _ in samples))
    if not ids:
        raise UsageError(f"{file} names no sample: nothing can be counted.")
    scorers = list(dict.fromkeys(name for s in samples.values() for name in s.scores or ()))
    facts = [log.eval.task, log.eval.task_version, log.eval.dataset.name, sorted(ids)]
    digest = sha256(msgspec.json.encode(facts)).hexdigest()
    task = log.eval.task.rpartition("/")[2]
    scorer = scorers[0] if scorers else None
    rows = tuple(_rows(log, ids, samples, scorer, task, digest))
    notes = ["Asked and scored by Inspect: controls, first tokens and server outcomes are not known."]
    if len(scorers) > 1:
        notes.append(f"Scored by {scorer}; also there and not taken: {', '.join(scorers[1:])}.")
    return InspectLog(
        task, digest, log.status, log.eval.packages.get("inspect_ai"), scorer, rows, tuple(notes)
    )  # fmt: skip


def _rows(
    log: _Log, ids: list[str], samples: dict[tuple[str, int], _Sample], scorer: str | None, task: str, digest: str
) -> Iterator[QualityRow]:
    for name in ids:
        for epoch in range(1, (log.eval.config.epochs or 1) + 1):
            sample = samples.get((name, epoch))
            score, blame, reason = _score(log.status, sample, scorer)
            answered = sample is not None and bool(sample.output.choices)
            usage = None if sample is None else sample.output.usage
            yield QualityRow(
                suite=f"inspect-{task}",
                suite_digest=digest,
                required_coverage=REQUIRED_COVERAGE,
                task=name,
                family="all",
                epoch=epoch - 1,
                grader=f"inspect:{scorer}",
                score=score,
                blame=blame,
                reason=reason,
                outcome=Outcome.COMPLETE if answered else None if sample is None else Outcome.ERROR,
                completion_tokens=None if usage is None else usage.output_tokens,
                digest=_digest(sample) if sample is not None and answered else None,
            )


def _score(status: str, sample: _Sample | None, scorer: str | None) -> tuple[float | None, Blame | None, str | None]:
    if sample is None:
        return None, Blame.HARNESS, f"not asked: the run ended with {status}"
    if sample.error is not None:
        return None, Blame.INFRASTRUCTURE, f"error: {_named(sample.error.message)}"
    found = None if scorer is None else (sample.scores or {}).get(scorer)
    if found is None:
        return None, Blame.GRADER, "not scored"
    value = LETTERS.get(found.value) if isinstance(found.value, str) else found.value
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        return None, Blame.GRADER, "the score is no number from 0 to 1"
    return (1.0, None, None) if value == 1 else (float(value), Blame.MODEL, f"scored {value:g} by {scorer}")


def _named(message: str) -> str:
    """The kind of an error: its text may hold prompt or answer."""
    cause, first, code = _CAUSE.search(message), _FIRST.match(message), _CODE.search(message)
    kind = cause or first
    return " ".join(filter(None, (kind and kind[1], code and f"HTTP {code[1]}"))) or "unknown"


def _digest(sample: _Sample) -> str:
    return sha256(msgspec.json.encode(sample.output.choices[0].message.content)).hexdigest()
