"""What is answered without an engine: the models that a caller may use, and the size of a prompt."""

import msgspec

from setpoint.gateway.ask import read_ask
from setpoint.gateway.identity import Identity
from setpoint.gateway.incoming import Request
from setpoint.gateway.refusal import Refusal
from setpoint.gateway.snapshot import Snapshot
from setpoint.records.target import Dialect

MODELS = "/v1/models"
COUNT_TOKENS = "/v1/messages/count_tokens"


def models(snapshot: Snapshot, identity: Identity, request: Request) -> bytes:
    """The document of ``/v1/models`` or of one model.

    Raises:
        Refusal: 404 for any other address, and for a model that the caller may not use; 405 for another method.
    """
    path, names = request.path, snapshot.visible(identity)
    wanted = path.removeprefix(f"{MODELS}/") if path.startswith(f"{MODELS}/") else None
    if path != MODELS and (wanted is None or wanted not in names):
        raise Refusal(404, "not_found", "There is nothing here for these credentials.")
    if request.method != "GET":
        raise Refusal(405, "method", "This address takes GET.")
    entries = [{"id": n, "object": "model", "created": 0, "owned_by": "setpoint"} for n in names]
    chosen = next((e for e in entries if e["id"] == wanted), None)
    return msgspec.json.encode(chosen or {"object": "list", "data": entries, "has_more": False})


def counted_tokens(snapshot: Snapshot, identity: Identity, request: Request) -> bytes:
    """Anthropic's count before the call: estimated from what the engine counted of earlier prompts.

    Raises:
        Refusal: the request, or its model.
    """
    ask = read_ask(request.body, Dialect.MESSAGES)
    route = snapshot.resolve(ask.model, identity)[0]
    return msgspec.json.encode({"input_tokens": route.estimate(ask.prompt_bytes)})
