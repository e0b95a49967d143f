"""A task, its reference answer, and an answer as graders see it."""

from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from setpoint.protocol.judgement import Answer


class ToolUse(BaseModel):
    """A tool call with its arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    arguments: dict[str, Any] = {}


class Reference(BaseModel):
    """A known answer: text, tool calls, or both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = ""
    calls: tuple[ToolUse, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _plain_text(cls, raw: object) -> object:
        return {"text": raw} if isinstance(raw, str) else raw


class GraderChoice(BaseModel):
    """A grader by name; all other members are its own parameters."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})


class Task(BaseModel):
    """One line of a suite.

    Attributes:
        id: Unique in the suite.
        family: Tasks that test the same thing share one.
        prompt: What the user says; or ``messages``, a whole conversation.
        messages: OpenAI messages.
        grader: Name and parameters.
        reference: An answer that deserves the full score: the positive control.
        wrong: Answers that look right and are not: part of the negative control.
        max_tokens: Answer limit.
        tools: OpenAI tool definitions that are offered.
        tool_choice: OpenAI ``tool_choice``.
        response_format: OpenAI ``response_format``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    family: str = "all"
    prompt: str | None = None
    messages: tuple[dict[str, Any], ...] = ()
    grader: GraderChoice
    reference: Reference
    wrong: tuple[Reference, ...] = ()
    max_tokens: int = Field(default=64, ge=1)
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None

    @field_validator("messages")
    @classmethod
    def _speakers(cls, messages: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for message in messages:
            if not {"role", "content"} <= message.keys():
                raise ValueError("expected messages with role and content")
        return messages

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if (self.prompt is None) == (not self.messages):
            raise ValueError("expected either a prompt or messages")
        return self

    @property
    def conversation(self) -> tuple[dict[str, Any], ...]:
        """The messages to send."""
        return self.messages or ({"role": "user", "content": self.prompt},)


@dataclass(frozen=True, slots=True)
class CallText:
    """A tool call as the server sent it: a name and a JSON text, which may be broken."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Response:
    """An answer as a grader sees it.

    Attributes:
        text: Visible text.
        calls: Tool calls, in order.
    """

    text: str
    calls: tuple[CallText, ...] = ()

    @classmethod
    def of(cls, answer: Answer) -> "Response":
        """What a client received."""
        return cls(answer.text, tuple(CallText(c.name or "", c.text) for c in answer.calls))
