"""Asking the tasks of suites, and recording every one of them: also those that were never answered or never sent."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from setpoint.client.client import Client
from setpoint.client.pending import Planned
from setpoint.errors import UsageError
from setpoint.protocol.requests import Asked
from setpoint.quality.blame import mark
from setpoint.quality.suite import Suite
from setpoint.quality.task import Response, Task
from setpoint.records.exchange import Exchange
from setpoint.records.quality import Blame, QualityRow
from setpoint.records.target import Dialect

Record = Callable[[Iterable[QualityRow]], None]
Keep = Callable[[QualityRow, Response | None], None]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are drawn; two scores are comparable when it is equal.

    Attributes:
        epochs: Answers to each task.
        temperature: 0 takes the likeliest token each time.
        seed: Of the order of questions; epoch ``i`` samples with ``seed + i`` where the server takes a seed.
        concurrency: Questions under way at once.
    """

    epochs: int = 1
    temperature: float = 0.0
    seed: int = 1
    concurrency: int = 4

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.concurrency < 1 or not 0 <= self.temperature <= 2:
            raise UsageError(
                f"found {self.epochs} epochs, concurrency {self.concurrency}, temperature {self.temperature}; expected "
                "at least one epoch, one question at once, and a temperature from 0 to 2."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One task, once; equal only to itself."""

    suite: Suite
    task: Task
    epoch: int


class Questions:
    """All questions of some suites.

    Args:
        suites: What to ask.
        sampling: How.
        heard: Told how many of how many are done.
        keep: Also given each answer, for a person who wants to read them; records never hold them.
    """

    def __init__(
        self,
        suites: Sequence[Suite],
        sampling: Sampling,
        *,
        heard: Callable[[int, int], None] = lambda _done, _all: None,
        keep: Keep | None = None,
    ) -> None:
        self.suites = tuple(suites)
        self.sampling = sampling
        self._heard = heard
        self._keep = keep

    def planned(self) -> list[Question]:
        """Every question, in the order of asking: mixed, so that load and drift meet all families alike."""
        out = [Question(s, t, e) for s in self.suites for t in s.tasks for e in range(self.sampling.epochs)]
        random.Random(self.sampling.seed).shuffle(out)
        return out

    async def ask(
        self,
        client: Client,
        record: Record,
        *,
        until_s: float | None = None,
        under_load: bool = False,
        sample: bool = False,
    ) -> None:
        """Asks all of them; when this returns or is cancelled, each has its row.

        Args:
            client: Of the target; row times count from its origin.
            record: Takes rows as they come.
            until_s: Nothing is sent after this time on the client's scale.
            under_load: Whether the target is under load meanwhile.
            sample: What was not sent is no part of the evaluation. The order is random, so what was sent is a random
                sample of the tasks, and its interval says what a sample can; without this, it is unmeasured.

        Raises:
            UsageError: the target makes vectors, not answers.
        """
        if client.target.dialect is Dialect.EMBEDDINGS:
            raise UsageError("A suite asks questions and this target makes embeddings.", fix="Give another --api.")
        waiting = self.planned()
        total, left = len(waiting), dict.fromkeys(waiting)
        begun: set[Question] = set()
        why = "not sent: the evaluation was ended"

        async def one_at_a_time() -> None:
            nonlocal why
            while waiting:
                if until_s is not None and client.clock.now() - client.origin_s >= until_s:
                    why = "not sent: the load ended before"
                    return
                question = waiting.pop()
                begun.add(question)
                row, response = await self._ask_one(client, question, total - len(waiting), under_load=under_load)
                record([row])
                del left[question]
                if self._keep is not None:
                    self._keep(row, response)
                self._heard(total - len(left), total)

        workers = [asyncio.ensure_future(one_at_a_time()) for _ in range(self.sampling.concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            unsent = left if not sample else [q for q in left if q in begun]
            record([_unsent(question, why, under_load=under_load) for question in unsent])

    async def _ask_one(
        self, client: Client, question: Question, index: int, *, under_load: bool
    ) -> tuple[QualityRow, Response | None]:
        task = question.task
        body = self._asked(client, task, question.epoch).body(task.conversation, task.max_tokens)
        planned = Planned(index, index, 0, client.clock.now(), 0, task.max_tokens)
        row, answer = await client.exchange(body, planned, keep_text=True)
        response = None if answer is None else Response.of(answer)
        marked = await asyncio.to_thread(mark, task, row, response)
        return (
            QualityRow(
                **_identity(question),
                score=marked.score,
                blame=marked.blame,
                reason=marked.reason,
                outcome=row.outcome,
                started_s=row.started_s,
                first_visible_s=row.first_visible_s,
                done_s=row.done_s,
                completion_tokens=row.completion_tokens,
                digest=_digest(row, response),
                under_load=under_load,
            ),
            response,
        )

    def _asked(self, client: Client, task: Task, epoch: int) -> Asked:
        extra: dict[str, object] = {}
        if self.sampling.temperature:
            extra["temperature"] = self.sampling.temperature
            if client.target.dialect is not Dialect.MESSAGES:
                extra["seed"] = self.sampling.seed + epoch
        if task.tool_choice is not None:
            extra["tool_choice"] = task.tool_choice
        return Asked(
            client.target.dialect,
            client.target.model,
            tools=task.tools,
            response_format=task.response_format,
            extra=extra,
        )


def _identity(question: Question) -> dict[str, Any]:
    suite, task = question.suite, question.task
    return {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "required_coverage": suite.required_coverage,
        "task": task.id,
        "family": task.family,
        "epoch": question.epoch,
        "grader": task.grader.name,
    }


def _unsent(question: Question, why: str, *, under_load: bool) -> QualityRow:
    return QualityRow(**_identity(question), score=None, blame=Blame.HARNESS, reason=why, under_load=under_load)


def _digest(row: Exchange, response: Response | None) -> str | None:
    if response is None or not row.outcome.answered:
        return None
    parts = [response.text, *(f"{call.name}\0{call.arguments}" for call in response.calls)]
    return sha256("\0\0".join(parts).encode()).hexdigest()
