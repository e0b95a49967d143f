"""The objects of OpenAI Responses: items, usage, and the response around them."""

from typing import Any

from setpoint.protocol.translate.blocks import Block, Kind
from setpoint.protocol.translate.writer import BrokenAnswer, Envelope, Spent

_INCOMPLETE = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
}
PART_TYPES = {Kind.TEXT: "output_text", Kind.THINKING: "reasoning_text"}
_PREFIXES = {Kind.TEXT: "msg", Kind.THINKING: "rs", Kind.CALL: "fc"}


def item_id(kind: Kind, answer_id: str, index: int) -> str:
    """Identifier of an item: its kind, the answer and its place."""
    return f"{_PREFIXES[kind]}_{answer_id}_{index}"


def part(kind: Kind, text: str) -> dict[str, Any]:
    """The one part of a message or of reasoning."""
    members: dict[str, Any] = {"type": PART_TYPES[kind], "text": text}
    return members | ({"annotations": [], "logprobs": []} if kind is Kind.TEXT else {})


def item(block: Block, identifier: str, text: str | None) -> dict[str, Any]:
    """An item of the output; ``text`` is None while it is being written."""
    status = "in_progress" if text is None else "completed"
    if block.kind is Kind.CALL:
        call = {"call_id": block.call_id, "name": block.name, "arguments": text or ""}
        return {"id": identifier, "type": "function_call", "status": status} | call
    content = [] if text is None else [part(block.kind, text)]
    if block.kind is Kind.THINKING:
        return {"id": identifier, "type": "reasoning", "status": status, "summary": [], "content": content}
    return {"id": identifier, "type": "message", "status": status, "role": "assistant", "content": content}


def _counts(spent: Spent) -> dict[str, Any] | None:
    if spent.completion is None:
        return None
    prompt = spent.prompt or 0
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": spent.cached or 0},
        "output_tokens": spent.completion,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning or 0},
        "total_tokens": prompt + spent.completion,
    }


def status_of(reason: str | None) -> str:
    """``completed``, or ``incomplete``: cut, withheld, or without a reason."""
    return "incomplete" if reason is None or reason in _INCOMPLETE else "completed"


def check_calls(reason: str | None, output: list[dict[str, Any]]) -> None:
    """An answer that ends for a tool call must hold one.

    Raises:
        BrokenAnswer: it holds none.
    """
    if reason == "tool_use" and not any(item["type"] == "function_call" for item in output):
        raise BrokenAnswer("finish_reason", "it names a tool call and there is none")


def response(
    envelope: Envelope,
    answer_id: str,
    model: str,
    created_s: int | None,
    status: str,
    output: list[dict[str, Any]],
    *,
    reason: str | None = None,
    spent: Spent | None = None,
) -> dict[str, Any]:
    """The response object. What the request said is not repeated: the translator of an answer has not seen it."""
    cut = _INCOMPLETE.get(reason or "") if status == "incomplete" else None
    return {
        "id": answer_id,
        "object": "response",
        "created_at": envelope.created_s if created_s is None else created_s,
        "status": status,
        "error": None,
        "incomplete_details": None if cut is None else {"reason": cut},
        "instructions": None,
        "metadata": {},
        "model": envelope.model or model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None if spent is None else _counts(spent),
    }
