"""Streams that vLLM and llama.cpp really sent."""

import itertools
import re

import pytest
from tests.protocol.translate.streams import CHAT, MESSAGES, RESPONSES, chat_answer, message, response, translated
from tests.shared import RECORDED

from setpoint.protocol.conformance import Case
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

NAMES = ["sse_llamacpp_chat", "sse_llamacpp_messages", "sse_vllm_chat", "sse_vllm_messages", "sse_vllm_tool"]


def recorded(name: str) -> tuple[Dialect, bytes]:
    raw = (RECORDED / "engine_samples" / f"{name}.txt").read_bytes()
    body = re.split(rb"\r?\n\r?\n", raw, maxsplit=1)[1]
    return (MESSAGES if "messages" in name else CHAT), body


@pytest.mark.parametrize(
    ("name", "target"),
    [(n, t) for n, t in itertools.product(NAMES, (CHAT, MESSAGES, RESPONSES)) if recorded(n)[0] is not t],
)
def test_a_recorded_stream_keeps_verdict_text_and_counts(name: str, target: Dialect) -> None:
    source, body = recorded(name)
    reader, judgement = Case(name, source, body, Outcome.COMPLETE).read()
    other, after = Case(name, target, translated(body, source, target), Outcome.COMPLETE).read()
    assert after.outcome is judgement.outcome
    was, now = reader.answer(), other.answer()
    assert was is not None
    assert now is not None
    assert now == was
    for count in ("prompt_tokens", "completion_tokens"):
        assert getattr(other.seen, count) == getattr(reader.seen, count)
    assert (other.seen.cached_tokens or 0) == (reader.seen.cached_tokens or 0)


def test_recorded_streams_satisfy_strict_clients() -> None:
    blocks, end = message(translated(recorded("sse_vllm_tool")[1], CHAT, MESSAGES))
    assert [(b["type"], b["name"], b["joined"]) for b in blocks] == [("tool_use", "get_weather", '"Paris"')]
    assert end["delta"]["stop_reason"] == "tool_use"
    assert chat_answer(translated(recorded("sse_llamacpp_messages")[1], MESSAGES, CHAT))["finish"] == "length"
    _, last = response(translated(recorded("sse_vllm_chat")[1], CHAT, RESPONSES))
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
