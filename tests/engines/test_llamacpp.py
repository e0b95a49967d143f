"""The embedded engine for real: llama.cpp with the embedded model."""

import asyncio
from pathlib import Path

import pytest
from tests.embedded import embedded_model

from setpoint.client.client import Client
from setpoint.client.pending import Planned
from setpoint.engines.registry import engine_named
from setpoint.engines.signals import SignalSampler
from setpoint.engines.supervisor import RunningEngine, start
from setpoint.errors import EngineError
from setpoint.protocol.requests import Asked
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.signal import SignalState
from setpoint.records.target import Dialect, Target

pytestmark = pytest.mark.engine
LLAMACPP = engine_named("llamacpp")


def begin(model: Path, tmp_path: Path, **flags: str) -> RunningEngine:
    return start(LLAMACPP, model, "smol", log=tmp_path / "engine.log", flags=flags)


def ask(target: Target, text: str, tokens: int) -> Exchange:
    async def once() -> Exchange:
        client = Client(target)
        body = Asked(target.dialect, target.model).body([{"role": "user", "content": text}], tokens)
        row, _ = await client.exchange(body, Planned(0, 0, 0, client.clock.now(), 8, tokens))
        await client.close()
        return row

    return asyncio.run(once())


def test_it_answers_in_both_dialects_streams_and_counts(tmp_path: Path) -> None:
    with begin(embedded_model(), tmp_path) as running:
        chat = ask(running.target, "Say hello.", 12)
        messages = ask(Target(running.target.base_url, Dialect.MESSAGES, "smol", running.target.api_key), "Hello", 8)
        signals = {r.signal: r for r in asyncio.run(SignalSampler(running.target, "llamacpp")(0.0))}
    for row, tokens in ((chat, 12), (messages, 8)):
        assert row.outcome in (Outcome.COMPLETE, Outcome.LENGTH), row.error
        assert row.completion_tokens is not None
        assert row.completion_tokens <= tokens
        assert len(row.chunk_s) >= 1
    assert chat.prompt_tokens is not None
    assert chat.prompt_tokens > 20  # the chat template is part of the prompt
    assert chat.server_prefill_s is not None
    assert signals["generation_tokens"].value is not None
    assert signals["generation_tokens"].value >= 12
    assert signals["kv_usage"].state is SignalState.UNSUPPORTED
    assert running.pins["precision"] == "Q4_1"
    assert str(running.pins["model_revision"]).startswith("sha256:b179c952")


def test_a_prompt_longer_than_the_context_is_refused(tmp_path: Path) -> None:
    with begin(embedded_model(), tmp_path, n_ctx="512", n_parallel="2") as running:
        row = ask(running.target, "word " * 600, 4)
    assert row.outcome is Outcome.REFUSED


def test_a_damaged_model_is_told_as_such(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    with embedded_model().open("rb") as file:
        broken.write_bytes(file.read(200_000))
    with pytest.raises(EngineError, match="the model file is missing or damaged"):
        begin(broken, tmp_path)


def test_an_unknown_flag_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="unknown flag n_paralel") as caught:
        begin(embedded_model(), tmp_path, n_paralel="8")
    assert "a flag is not known" in str(caught.value)
