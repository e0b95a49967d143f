"""A prompt's token ids, asked of an engine that will serve it: ``/tokenize`` of vLLM applies its own chat template."""

from array import array

import msgspec

from setpoint.client.client import Client
from setpoint.errors import TargetError
from setpoint.gateway.replica import Replica
from setpoint.records.target import Dialect, Target

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# what decides over the tokens of a prompt, and is no option of the answer
_TOLD = {
    Dialect.CHAT: (
        "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template",
        "chat_template_kwargs", "mm_processor_kwargs",
    ),
    Dialect.COMPLETIONS: ("prompt", "add_special_tokens"),
}  # fmt: skip


class _Answer(msgspec.Struct):
    tokens: list[int]


async def token_ids(replica: Replica, dialect: Dialect, body: bytes, limit_s: float) -> bytes | None:
    """Token ids of the prompt in a request, four bytes each; None where the engine does not tell in time.

    Args:
        replica: Which engine is asked.
        dialect: Of the request.
        body: The request as the engine will get it.
        limit_s: How long it may take: the request waits for it.
    """
    told = _TOLD.get(dialect)
    if told is None:
        return None
    members = _members(body)
    if bytes(members.get("prompt", b'"')).lstrip()[:1] != b'"':
        return None  # several prompts, or tokens already
    asked = {name: members[name] for name in (*told, "model") if name in members}
    target = Target(replica.config.url, Dialect.CHAT, replica.model, replica.api_key, ca_file=replica.config.ca_file)
    try:
        answer = await Client(target).fetch("POST", "/tokenize", msgspec.json.encode(asked), timeout_s=limit_s)
        if answer.status != 200:
            return None
        return array("I", msgspec.json.decode(answer.body, type=_Answer).tokens).tobytes()
    except (TargetError, msgspec.DecodeError, OverflowError):
        return None
