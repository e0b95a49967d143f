"""``rendered_prompt``: what the chat template makes of fixed messages, as a hash to compare between deployments."""

from hashlib import sha256

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server

NAME = "rendered_prompt"
MESSAGES = (
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": "First question?"},
    {"role": "assistant", "content": "First answer."},
    {"role": "user", "content": 'Second question, with <angle> & "quotes" and ünïcode?'},
)


async def rendered_prompt(server: Server) -> Finding:
    """Asks llama.cpp's ``/apply-template``, else vLLM's ``/tokenize`` of messages; others do not tell."""
    status, said = await server.post("/apply-template", {"messages": MESSAGES})
    if status == 200 and isinstance(said, dict) and isinstance(said.get("prompt"), str):
        return _found(said["prompt"].encode(), "/apply-template")
    body = {"model": server.client.target.model, "messages": MESSAGES}
    status, said = await server.post("/tokenize", body)
    tokens = said.get("tokens") if status == 200 and isinstance(said, dict) else None
    if isinstance(tokens, list) and len(tokens) > 12:  # a tokenizer that ignores messages gives none
        return _found(repr(tokens).encode(), "/tokenize")
    return Finding(NAME, State.UNDECIDED, "the target does not show the prompt that it renders")


def _found(rendered: bytes, source: str) -> Finding:
    digest = sha256(rendered).hexdigest()
    why = f"rendered by {source}, SHA-256 {digest[:16]}; compared with the baseline's"
    return Finding(NAME, State.MET, why, {"sha256": digest, "source": source})
