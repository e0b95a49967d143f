"""Graded answers and token distributions: the rows of ``quality.parquet`` and ``distributions.parquet``.

As everywhere in a record there is no text: an answer is its score, what became of it, and a digest.
"""

from enum import StrEnum

import msgspec

from setpoint.records.exchange import Outcome


class Blame(StrEnum):
    """Who to look at first for an answer that is not right; in this order, the model last."""

    HARNESS = "harness"  # we did not ask, or asked what the server does not accept
    INFRASTRUCTURE = "infrastructure"  # the request did not come through, or its answer did not
    GRADER = "grader"  # the grader could not grade
    PARSER = "parser"  # chat template, tool parser or reasoning parser: markup where the answer should be
    MODEL = "model"  # a proper answer that is wrong


class QualityRow(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to one task. Times are seconds on the monotonic clock since the run's origin.

    Attributes:
        suite: Name of the suite.
        suite_digest: SHA-256 of its tasks.
        required_coverage: Share of the suite's answers that must be measured for a verdict.
        task: Id of the task.
        family: Tasks that test the same thing.
        epoch: Repetition, from 0.
        grader: Name of the grader.
        score: 0 to 1; None when the answer could not be measured, which is never the same as wrong.
        blame: Who to look at; None when the score is full.
        reason: In words, without text of task or answer; None when the score is full.
        outcome: How the exchange ended; None when it was never sent.
        started_s: When the request was sent; None: never.
        first_visible_s: First visible token; None: never.
        done_s: End of the exchange; None: never sent.
        completion_tokens: As the server counted; None when it did not say.
        digest: SHA-256 of text and tool calls: equal digests are equal answers. None without an answer.
        under_load: The answer was produced while the card's load was on the target.
    """

    suite: str
    suite_digest: str
    required_coverage: float
    task: str
    family: str
    epoch: int
    grader: str
    score: float | None
    blame: Blame | None = None
    reason: str | None = None
    outcome: Outcome | None = None
    started_s: float | None = None
    first_visible_s: float | None = None
    done_s: float | None = None
    completion_tokens: int | None = None
    digest: str | None = None
    under_load: bool = False

    def __post_init__(self) -> None:
        if self.score is not None and not 0.0 <= self.score <= 1.0:
            raise ValueError(f"task {self.task}: score {self.score}, expected 0 to 1")
        if (self.blame is None) != (self.score == 1.0):
            raise ValueError(
                f"task {self.task}: score {self.score} with blame {self.blame}; only a full score has none"
            )


class DistributionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of the likeliest next tokens after a pinned text.

    Attributes:
        text: Id of the text.
        position: Words of the text that were given.
        repeat: The same question asked again, from 0: what differs between repeats is the floor.
        rank: 0 is the likeliest.
        token: Digest of the token's bytes.
        logprob: Natural logarithm of its probability.
    """

    text: str
    position: int
    repeat: int
    rank: int
    token: str
    logprob: float
