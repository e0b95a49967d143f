"""Each contract of a server against one that keeps it, one that breaks it, and one that does not show it.

The servers are functions from a request to an answer; the same checks meet real sockets in ``tests/cli/test_eval.py``.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from tests.metrics.rows import exchange

from setpoint.client.client import Client
from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server
from setpoint.quality.serving.registry import CHECKS
from setpoint.quality.task import CallText, Response
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.target import Dialect, Target

Asked = dict[str, Any]


def said(
    text: str = "fine",
    *,
    outcome: Outcome = Outcome.COMPLETE,
    calls: tuple[CallText, ...] = (),
    **fields: object,
) -> tuple[Exchange, Response]:
    row = msgspec.structs.replace(exchange(0, outcome=outcome), **fields)
    return row, Response(text, calls)


class Scripted(Server):
    """A server whose answers are made by functions."""

    def __init__(
        self,
        answer: Callable[[Asked], tuple[Exchange, Response]],
        posted: Callable[[str, Asked], tuple[int, Any]] = lambda _path, _body: (404, None),
    ) -> None:
        self._answer, self._posted = answer, posted

        class OnlyTarget:
            target = Target("http://127.0.0.1:9", Dialect.CHAT, "m")

        self.client = cast("Client", OnlyTarget())

    async def ask(self, messages: Any, max_tokens: int, **options: Any) -> tuple[Exchange, Response]:  # noqa: ANN401
        await asyncio.sleep(0)
        return self._answer({"prompt": messages, "max_tokens": max_tokens, "stream": True} | options)

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return self._posted(path, body)


async def checked(name: str, server: Server) -> Finding:
    return await CHECKS[name](server)


def state(check: str, server: Server) -> tuple[State, str]:
    found = asyncio.run(checked(check, server))
    assert found.name == check
    return found.state, found.reason


REFUSED = said("", outcome=Outcome.REFUSED, status=400)
LOST = said("", outcome=Outcome.TIMEOUT)


def test_a_stream_that_drops_a_piece_is_found_and_an_unsteady_model_is_not_blamed() -> None:
    assert state("streaming", Scripted(lambda a: said(a["prompt"])))[0] is State.MET
    drops = state("streaming", Scripted(lambda a: said(a["prompt"][:-1] if a["stream"] else a["prompt"])))
    assert drops[0] is State.MISSED
    count = iter(range(100))
    assert state("streaming", Scripted(lambda _: said(str(next(count)))))[0] is State.UNDECIDED
    assert state("streaming", Scripted(lambda _: LOST))[0] is State.UNDECIDED


def test_a_cut_answer_must_say_so_and_be_no_longer_than_asked() -> None:
    def cut(completion_tokens: int) -> Server:
        return Scripted(lambda _: said(outcome=Outcome.LENGTH, completion_tokens=completion_tokens))

    assert state("truncation", cut(5))[0] is State.MET
    assert state("truncation", cut(9))[0] is State.MISSED
    assert state("truncation", Scripted(lambda _: said(finish_reason="stop")))[0] is State.MISSED
    silent = Scripted(lambda a: said(outcome=Outcome.LENGTH if a["stream"] else Outcome.COMPLETE))
    assert state("truncation", silent)[0] is State.MISSED
    assert state("truncation", Scripted(lambda _: LOST))[0] is State.UNDECIDED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"city": "Oslo", "people": 700000, "coast": true}', State.MET),
        ('{"city": "Oslo", "people": "many", "coast": true}', State.MISSED),
        ('{"city": "Oslo", "people": 1, "coast": true, "more": 1}', State.MISSED),
        ('```json\n{"city": "Oslo", "people": 1, "coast": true}\n```', State.MISSED),
    ],
)
def test_json_that_was_asked_for_keeps_its_schema(text: str, expected: State) -> None:
    assert state("json_contract", Scripted(lambda _: said(text)))[0] is expected


def test_json_that_never_ends_or_is_not_offered_decides_nothing() -> None:
    assert state("json_contract", Scripted(lambda _: said("{", outcome=Outcome.LENGTH)))[0] is State.UNDECIDED
    assert state("json_contract", Scripted(lambda _: REFUSED))[0] is State.UNDECIDED


def called(name: str = "get_weather", arguments: str = '{"city": "Paris"}') -> tuple[CallText, ...]:
    return (CallText(name, arguments),)


def test_a_required_call_comes_with_an_offered_name_and_its_arguments() -> None:
    def tool(calls: tuple[CallText, ...], outcome: Outcome = Outcome.COMPLETE) -> State:
        return state("tool_contract", Scripted(lambda _: said("", calls=calls, outcome=outcome)))[0]

    assert tool(called()) is State.MET
    assert tool(()) is State.MISSED
    assert tool(called("get_wether")) is State.MISSED
    assert tool(called(arguments='{"town": "Paris"}')) is State.MISSED
    assert tool(called(arguments='{"city": '), Outcome.MALFORMED) is State.MISSED
    assert tool((), Outcome.LENGTH) is State.UNDECIDED
    whole = Scripted(lambda a: said("", calls=called() if a["stream"] else ()))
    assert state("tool_contract", whole) == (State.MISSED, "a call was required and the whole answer has none")
    assert state("tool_contract", Scripted(lambda _: REFUSED))[0] is State.UNDECIDED


def words(asked: Asked) -> int:
    return len(asked["prompt"].split())


def needle(asked: Asked) -> str:
    found = re.search(r"number is (\d+)", asked["prompt"])
    return found[1] if found else ""


def test_a_prompt_that_is_cut_in_silence_is_found_by_its_count() -> None:
    assert state("long_prompt", Scripted(lambda a: said(needle(a), prompt_tokens=words(a))))[0] is State.MET
    cut = Scripted(lambda a: said("?", prompt_tokens=min(words(a), 600)))
    assert state("long_prompt", cut)[0] is State.MISSED
    forgets = Scripted(lambda a: said(needle(a) if words(a) < 300 else "?", prompt_tokens=words(a)))
    assert state("long_prompt", forgets)[0] is State.UNDECIDED
    assert state("long_prompt", Scripted(lambda a: said(needle(a), prompt_tokens=None)))[0] is State.UNDECIDED
    refuses = Scripted(lambda a: said(needle(a), prompt_tokens=words(a)) if words(a) < 600 else REFUSED)
    assert state("long_prompt", refuses)[0] is State.MET


def test_billed_tokens_are_those_of_the_tokenizer() -> None:
    def tokenize(_: str, body: Asked) -> tuple[int, Any]:
        return 200, {"tokens": list(range(len(body["content"].split())))}

    def bills(factor: float) -> Server:
        return Scripted(lambda a: said(prompt_tokens=round(30 + factor * words(a))), tokenize)

    assert state("token_accounting", bills(1.0))[0] is State.MET
    assert state("token_accounting", bills(1.2))[0] is State.MISSED
    assert state("token_accounting", Scripted(lambda _: said()))[0] is State.UNDECIDED


def test_a_code_of_another_request_in_an_answer_is_a_leak() -> None:
    def code(asked: Asked) -> str:
        return str(asked["prompt"]).rpartition(" ")[2]

    assert state("nonce_leak", Scripted(lambda a: said(code(a))))[0] is State.MET
    seen: list[str] = []

    def mixed(asked: Asked) -> tuple[Exchange, Response]:
        seen.append(code(asked))
        return said(seen[-2] if len(seen) == 8 else "ok")

    assert state("nonce_leak", Scripted(mixed)) == (State.MISSED, "an answer holds the code of another request")
    assert state("nonce_leak", Scripted(lambda _: LOST))[0] is State.UNDECIDED


def salted(*, knows: bool = True, hits: bool = True, isolates: bool = True) -> Server:
    seen: set[tuple[str, str]] = set()

    def answer(asked: Asked) -> tuple[Exchange, Response]:
        salt = asked["cache_salt"]
        if not salt:
            return REFUSED if knows else said()
        key = (salt if isolates else "", asked["prompt"])
        cached = 400 if hits and key in seen else 0
        seen.add(key)
        return said(cached_tokens=cached)

    return Scripted(answer)


def test_the_same_salt_hits_and_another_misses() -> None:
    assert state("cache_salt", salted())[0] is State.MET
    assert state("cache_salt", salted(hits=False))[0] is State.MISSED
    assert state("cache_salt", salted(isolates=False)) == (State.MISSED, "another salt found 400 cached tokens")
    assert state("cache_salt", salted(knows=False))[0] is State.UNDECIDED


def test_the_rendered_prompt_is_a_hash_that_changes_with_the_template() -> None:
    def renders(template: str) -> Server:
        def posted(path: str, body: Asked) -> tuple[int, Any]:
            if path != "/apply-template":
                return 404, None
            return 200, {"prompt": "".join(template.format(**m) for m in body["messages"])}

        return Scripted(lambda _: said(), posted)

    def facts(server: Server) -> dict[str, Any]:
        found = asyncio.run(checked("rendered_prompt", server))
        assert found.state is State.MET
        return found.facts

    chat = "<|{role}|>{content}"
    assert facts(renders(chat)) == facts(renders(chat))
    assert facts(renders(chat)) != facts(renders("<|{role}|> {content}"))
    assert state("rendered_prompt", Scripted(lambda _: said()))[0] is State.UNDECIDED


def test_every_check_has_been_seen_to_fail_here() -> None:
    """A new check is added with a server that breaks its contract."""
    assert set(CHECKS) == {
        "rendered_prompt", "streaming", "truncation", "json_contract", "tool_contract", "long_prompt",
        "token_accounting", "nonce_leak", "cache_salt",
    }  # fmt: skip
