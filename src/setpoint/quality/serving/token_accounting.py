"""``token_accounting``: the prompt tokens that are billed are those of the target's own tokenizer."""

from typing import Any

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server, failed

NAME = "token_accounting"
SHORT = "The boat."
LONG = SHORT + " It rained for 12 days; naïve sailors waited, others (the old ones) mended nets & told stories." * 3


async def token_accounting(server: Server) -> Finding:
    """The difference of two prompts, so that the chat template falls out."""
    tokens = [_count(await server.post("/tokenize", _body(server, text))) for text in (SHORT, LONG)]
    if tokens[0] is None or tokens[1] is None:
        return Finding(NAME, State.UNDECIDED, "the target has no tokenizer endpoint")
    counted = []
    for text in (SHORT, LONG):
        row, _ = await server.ask(text, 1)
        if not row.outcome.answered:
            return failed(NAME, row)
        if row.prompt_tokens is None:
            return Finding(NAME, State.UNDECIDED, "the target does not count prompt tokens")
        counted.append(row.prompt_tokens)
    expected, found = tokens[1] - tokens[0], counted[1] - counted[0]
    if abs(expected - found) > 1:  # a word may join the template's last token
        return Finding(NAME, State.MISSED, f"usage grows by {found} tokens, the tokenizer says {expected}")
    return Finding(NAME, State.MET, f"usage grows by {found} tokens, the tokenizer says {expected}")


def _body(server: Server, text: str) -> dict[str, Any]:
    return {"content": text, "prompt": text, "model": server.client.target.model, "add_special_tokens": False}


def _count(answer: tuple[int, Any]) -> int | None:
    status, said = answer
    if status != 200 or not isinstance(said, dict):
        return None
    tokens = said.get("tokens")
    return len(tokens) if isinstance(tokens, list) else said.get("count")
