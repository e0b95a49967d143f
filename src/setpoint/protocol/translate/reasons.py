"""Why an answer ended, in three dialects. A reason that is not in a table is carried as it is, never replaced."""

from setpoint.protocol.judgement import FAILED

_FROM_CHAT = {
    "stop": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "length": "max_tokens",
    "model_length": "model_context_window_exceeded",
    "max_output_tokens": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "safety": "refusal",
}
_TO_CHAT = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def from_chat(reason: str, *, calls: bool) -> str:
    """A chat finish reason in Anthropic's words.

    Args:
        reason: As the engine sent it.
        calls: The answer holds tool calls. Several engines then say ``stop`` (OpenAI does so for a forced function):
            an Anthropic client would not run the tools.
    """
    neutral = _FROM_CHAT.get(reason, reason)
    return "tool_use" if neutral == "end_turn" and calls else neutral


def to_chat(reason: str) -> str:
    """Anthropic's stop reason as a chat finish reason."""
    return _TO_CHAT.get(reason, reason)


def failed(reason: str) -> bool:
    """Whether the reason admits a failure."""
    return reason in FAILED
