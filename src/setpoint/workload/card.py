"""The workload card: what the product is, what its traffic looks like, what it promises, what limits the solution."""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

import msgspec
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from setpoint.workload.distribution import Counts, Lengths, Times, ToolCounts
from setpoint.workload.promise import LATENCIES, Boundary, Metric, Promise
from setpoint.workload.quantity import Duration, Field_, Flag, Number, Rate, Refused, Share, Tokens, Whole

API_VERSION = "setpoint/v1"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class Contract(_Part):
    """What the product is.

    Attributes:
        unit: The unit of work that cost and goodput are counted in, in words.
        modality: What goes in and comes out.
        api: The API that clients call.
        response: Shape of an answer.
        streaming: Whether clients read the answer as it is made.
        tools: Number of tools offered with each request.
    """

    unit: str = Field(default="request", min_length=1, max_length=120)
    modality: Literal["text", "embedding"] = "text"
    api: Literal["chat", "completions", "messages", "embeddings"] = "chat"
    response: Literal["text", "json", "tool_call", "vector"] = "text"
    streaming: Flag = True
    tools: Whole = Field(default=0, ge=0, le=512)


class Constant(_Part):
    """Sessions at equal distances."""

    process: Literal["constant"]
    rate: Rate


class Poisson(_Part):
    """Sessions that come independently of each other."""

    process: Literal["poisson"]
    rate: Rate


class Gamma(_Part):
    """Sessions in bursts: gaps are gamma-distributed.

    Attributes:
        rate: Mean rate.
        burstiness: Squared coefficient of variation of the gaps: 1 is Poisson, above 1 comes in bursts.
    """

    process: Literal["gamma"]
    rate: Rate
    burstiness: Number = Field(gt=0, le=1000)


class Ramp(_Part):
    """A Poisson process whose rate changes linearly over the run."""

    process: Literal["ramp"]
    start: Rate
    end: Rate


class Closed(_Part):
    """A fixed number of users, each with one session at a time.

    Attributes:
        users: How many.
        think_time: Time between a user's sessions.
    """

    process: Literal["closed"]
    users: Whole = Field(ge=1, le=100_000)
    think_time: Times = Times.of(0.0)


class Replay(_Part):
    """The arrivals and lengths of a trace, in its order.

    Attributes:
        trace: File, relative to the card.
        speed: 2 replays twice as fast.
    """

    process: Literal["replay"]
    trace: str = Field(min_length=1)
    speed: Number = Field(default=1.0, gt=0, le=1_000_000)


Arrivals = Annotated[Constant | Poisson | Gamma | Ramp | Closed | Replay, Field(discriminator="process")]


class Prefix(_Part):
    """Prompts that have a part in common.

    Attributes:
        tokens: Length of the shared part; part of ``prompt_tokens``. A prompt that is no longer than that keeps its
            length and shares all but one of its tokens.
        groups: Number of different shared parts.
        share: Share of sessions that have one.
        position: Where it stands in the prompt. A cache of prefixes reuses equal beginnings only: what stands behind
            the part that varies is computed anew each time. ``front`` unless named.
    """

    tokens: Tokens = Field(gt=0, le=10_000_000)
    groups: Whole = Field(default=1, ge=1, le=100_000)
    share: Share = 1.0
    position: Literal["front", "behind"] | None = None


class Conversation(_Part):
    """Sessions of several turns. History carries the answers that were really received.

    Attributes:
        turns: User turns in a session, the first included.
        think_time: From the end of an answer to the next turn.
        follow_up_tokens: New tokens in each later turn; the opening's distribution unless named.
    """

    turns: Counts
    think_time: Times = Times.of(0.0)
    follow_up_tokens: Lengths | None = None


class Agent(_Part):
    """Turns in which a tool's result is sent back.

    Attributes:
        tool_turns: Tool turns after the opening; 0 where no tool is needed.
        tool_time: From the end of an answer to its tool's result.
        result_tokens: Length of a tool's result.
    """

    tool_turns: ToolCounts
    tool_time: Times = Times.of(0.0)
    result_tokens: Lengths


class Traffic(_Part):
    """What traffic looks like.

    Attributes:
        kind: ``class`` in the file: interactive traffic has a latency promise, batch need not have one.
        arrivals: How sessions begin.
        prompt_tokens: Length of a session's opening prompt, the shared prefix included.
        output_tokens: Length of an answer.
        prefix: Shared beginnings; none unless named.
        conversation: Several user turns; one unless named.
        agent: Tool turns; none unless named.
        duration: Length of the send window.
        warmup_requests: Requests before the measured part.
    """

    kind: Literal["interactive", "batch"] = Field(default="interactive", alias="class")
    arrivals: Arrivals
    prompt_tokens: Lengths
    output_tokens: Lengths
    prefix: Prefix | None = None
    conversation: Conversation | None = None
    agent: Agent | None = None
    duration: Duration = Field(default=60.0, gt=0, le=7 * 86400)
    warmup_requests: Whole = Field(default=4, ge=0, le=10_000)


class Budget(_Part):
    """What the service may cost, in one currency.

    Attributes:
        currency: ISO 4217 code.
        per_hour: For the whole service.
        per_million_tokens: Of output.
        per_unit: Of work (see ``contract.unit``).
    """

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    per_hour: Number | None = Field(default=None, gt=0)
    per_million_tokens: Number | None = Field(default=None, gt=0)
    per_unit: Number | None = Field(default=None, gt=0)


class Constraints(_Part):
    """What limits the solution. Empty lists allow everything.

    Attributes:
        budget: What it may cost.
        regions: Where it may run.
        licences: Licences that a model may have, by SPDX id or model licence name.
        hardware: Accelerators that may be used.
        commercial: Whether the product earns money, so that non-commercial licences are out.
    """

    budget: Budget | None = None
    regions: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    commercial: Flag = True


class Workload(_Part):
    """A workload card.

    Attributes:
        api_version: ``apiVersion`` in the file.
        kind: Always ``Workload``.
        name: Lower-case letters, digits and dashes: names runs and reports.
        description: For people.
        contract: What the product is.
        traffic: What traffic looks like.
        promises: What is promised.
        constraints: What limits the solution.
    """

    api_version: Literal["setpoint/v1"] = Field(alias="apiVersion")
    kind: Literal["Workload"]
    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$")
    description: str = Field(default="", max_length=2000)
    contract: Contract = Contract()
    traffic: Traffic
    promises: tuple[Promise, ...] = ()
    constraints: Constraints = Constraints()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.traffic.agent is not None:  # for agents E2E is the whole task
            object.__setattr__(self, "promises", tuple(_of_the_task(p) for p in self.promises))
        found = contradictions(self)
        if found:
            raise Refused([(field, None, expected) for field, expected in found])
        return self

    def to_dict(self) -> dict[str, Any]:
        """The card as JSON holds it, with the names of the file."""
        dumped: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return dumped

    def digest(self) -> str:
        """SHA-256 of what determines the traffic and the verdicts; the description is left out."""
        facts = {key: value for key, value in self.to_dict().items() if key != "description"}
        return sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()

    def to_yaml(self) -> str:
        """The card as a file; reads back to an equal card."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True, width=100)

    def tightest(self, metric: Metric) -> Promise | None:
        """The promise with the lowest limit on a latency."""
        limited = [p for p in self.promises if p.metric is metric and p.limit_s is not None]
        return min(limited, key=lambda p: p.limit_s or 0.0, default=None)


def _of_the_task(promise: Promise) -> Promise:
    whole = promise.metric is Metric.E2E and promise.boundary is None
    return promise.model_copy(update={"boundary": Boundary.TASK}) if whole else promise


def contradictions(card: Workload) -> list[tuple[Field_, str]]:
    """Fields that cannot both be meant: (path, what was expected), all of them."""
    return [*_contract_contradictions(card), *_traffic_contradictions(card), *_promise_contradictions(card)]


def _contract_contradictions(card: Workload) -> Iterator[tuple[Field_, str]]:
    contract = card.contract
    embeddings = contract.api == "embeddings"
    if embeddings != (contract.modality == "embedding"):
        yield ("contract", "modality"), "embedding with api embeddings, and only there"
    if contract.response == "vector" and not embeddings:
        yield ("contract", "response"), "vector with api embeddings only"
    if embeddings and contract.response in ("json", "tool_call"):
        yield ("contract", "response"), "vector: embeddings have no other answer"
    if contract.response == "tool_call" and not contract.tools:
        yield ("contract", "response"), "tool_call only where contract.tools is above 0"
    if contract.tools and contract.api in ("completions", "embeddings"):
        yield ("contract", "tools"), f"0: {contract.api} has no tools"


def _traffic_contradictions(card: Workload) -> Iterator[tuple[Field_, str]]:
    contract, traffic = card.contract, card.traffic
    if contract.api in ("completions", "embeddings"):
        for name in ("conversation", "agent"):
            if getattr(traffic, name) is not None:
                yield ("traffic", name), f"none: {contract.api} has no turns"
    if traffic.conversation is not None and traffic.agent is not None:
        yield ("traffic", "agent"), "either conversation or agent"
    if traffic.prefix is not None and traffic.prefix.tokens >= traffic.prompt_tokens.top:
        yield ("traffic", "prefix", "tokens"), "fewer than the longest prompt"


def _promise_contradictions(card: Workload) -> Iterator[tuple[Field_, str]]:
    streams = card.contract.streaming and card.contract.api != "embeddings"
    seen: set[tuple[object, ...]] = set()
    for i, promise in enumerate(card.promises):
        if promise.metric in (Metric.TTFT, Metric.ITL, Metric.TPOT) and not streams:
            yield ("promises", i), f"no {promise.metric} promise: the answer does not stream; promise e2e"
        if promise.boundary is Boundary.TASK and card.traffic.agent is None:
            yield ("promises", i, "boundary"), "task only where traffic.agent is given"
        boundary = promise.boundary or Boundary.SCHEDULED
        key = (promise.metric, promise.quantile, boundary, promise.suite)
        if key in seen:
            yield ("promises", i), f"one limit for {re.split(' [≤≥]', promise.label)[0]}"
        seen.add(key)
    interactive = card.traffic.kind == "interactive"
    if interactive and card.promises and not any(p.metric in LATENCIES for p in card.promises):
        yield ("promises",), "a latency promise for interactive traffic, or class: batch"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a card file."""
    schema = Workload.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Setpoint workload card", **schema}
