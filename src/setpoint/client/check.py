"""Does this target answer? Found out before a run is planned around it, with one clear message when it does not."""

from dataclasses import replace

import msgspec

from setpoint.client.address import failure_remedy
from setpoint.client.client import Client, Response
from setpoint.client.limits import PhaseTimeouts
from setpoint.client.pending import Planned
from setpoint.errors import TargetError
from setpoint.protocol.requests import Asked
from setpoint.protocol.wire import NOT_DECODED, decoded_error, error_kind
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.target import Dialect, Target


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


async def model_names(client: Client, *, timeout_s: float = 10.0) -> list[str] | None:
    """Names in ``/v1/models``; None when the server does not list them.

    Raises:
        TargetError: not reachable, redirecting, or the key is not accepted.
    """
    response = await client.fetch("GET", "/v1/models", timeout_s=timeout_s)
    _refuse_key(client.target, response)
    _refuse_redirect(client.target, response)
    if response.status != 200:
        return None
    try:
        return [model.id for model in msgspec.json.decode(response.body, type=_Models).data]
    except NOT_DECODED:
        return None


async def resolve_model(target: Target, *, timeout_s: float = 10.0) -> Target:
    """The target with its model name: as given, or the only one that the server lists.

    Raises:
        TargetError: not reachable, several models to choose from, or the named one is not among them.
    """
    client = Client(target, timeouts=PhaseTimeouts(connect_s=timeout_s))
    names = await model_names(client, timeout_s=timeout_s)
    if target.model:
        if names and target.model not in names:
            raise TargetError(
                f"{target.base_url} does not serve the model {target.model!r}; it lists {_listed(names)}.",
                fix="Name one of these with --model.",
            )
        return target
    if not names:
        raise TargetError(f"{target.base_url} does not list its models.", fix="Name the model with --model.")
    if len(names) > 1:
        raise TargetError(f"{target.base_url} serves {_listed(names)}.", fix="Choose one with --model.")
    return replace(target, model=names[0])


async def check(target: Target, *, timeout_s: float = 60.0) -> Exchange:
    """Sends one short request and returns its exchange.

    Raises:
        TargetError: the answer is not one; says what came instead and what to do.
    """
    streams = target.dialect is not Dialect.EMBEDDINGS
    limits = PhaseTimeouts(
        connect_s=min(10.0, timeout_s / 2), first_token_s=timeout_s, gap_s=timeout_s, total_s=timeout_s
    )
    client = Client(target, timeouts=limits)
    asked = Asked(target.dialect, target.model, stream=streams)
    body = asked.body([{"role": "user", "content": "Say one word."}], 2)
    try:
        exchange, _ = await client.exchange(body, Planned(0, 0, 0, client.clock.now(), 4, 2, warmup=True))
    finally:
        await client.close()
    # Two tokens may all be hidden reasoning: then the server does answer, and says why it stopped.
    speaks = exchange.outcome in (Outcome.EMPTY, Outcome.REASONING_EXHAUSTED) and exchange.finish_reason is not None
    if exchange.outcome.answered or speaks:
        return exchange
    raise TargetError(f"{target.base_url}{asked.path}: {_what(exchange)}", fix=_remedy(exchange, target))


def _what(exchange: Exchange) -> str:
    if exchange.outcome is Outcome.TIMEOUT:
        if exchange.first_token_s is not None:
            reached = "began to answer and stopped"
        elif exchange.sent_s is not None:
            reached = "took the request and did not answer"
        else:
            reached = "did not accept a connection"
        return f"the server {reached} ({exchange.error})."
    if exchange.outcome in (Outcome.MALFORMED, Outcome.EMPTY):
        return f"what came back is not an answer: {exchange.error}."
    return f"{exchange.error}."


def _remedy(exchange: Exchange, target: Target) -> str:
    status, error = exchange.status, exchange.error or ""
    if status in (401, 403):
        return "The key was not accepted: name the variable that holds it with --api-key-env."
    if status == 404:
        return f"Check the URL, the API ({target.dialect.value}) and the model name {target.model!r}."
    if exchange.outcome is Outcome.REJECTED:
        return "The server is out of capacity or loading: try again when it is idle."
    if status is not None and 400 <= status < 500:
        return f"The server does not take this request: check the API ({target.dialect.value}) and the model's limits."
    if status is not None and 300 <= status < 400:
        return _REDIRECT
    if exchange.outcome in (Outcome.MALFORMED, Outcome.EMPTY):
        return "Is this an OpenAI- or Anthropic-compatible server, and is the port right (http or https)?"
    return failure_remedy(error) or "Look at the server's log."


def _refuse_key(target: Target, response: Response) -> None:
    if response.status in (401, 403):
        kind = error_kind(decoded_error(response.body))
        detail = "" if kind == "error" else f" ({kind})"
        given = "the key was not accepted" if target.api_key else "a key is needed"
        raise TargetError(
            f"{target.base_url}: HTTP {response.status}{detail}, {given}.",
            fix="Name the environment variable that holds it with --api-key-env.",
        )


_REDIRECT = "Redirects are not followed: give the address that it leads to."


def _refuse_redirect(target: Target, response: Response) -> None:
    if 300 <= response.status < 400:
        where = response.fields.get("location", "another address")[:200]
        raise TargetError(f"{target.base_url}: HTTP {response.status}, redirects to {where}.", fix=_REDIRECT)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
