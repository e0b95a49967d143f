"""Two real engines behind the gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embedded import embedded_model
from tests.gateway.conftest import HELLO, Served, config_of, served, until

from setpoint.engines.registry import engine_named
from setpoint.engines.supervisor import RunningEngine, start

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningEngine]]:
    folder = tmp_path_factory.mktemp("engines")
    flags = {"n_parallel": "2", "n_ctx": "8192", "n_threads": "1"}
    llamacpp = engine_named("llamacpp")
    running = [start(llamacpp, embedded_model(), "smol", log=folder / f"{i}.log", flags=flags) for i in range(2)]
    yield running
    for one in running:
        one.stop()


@pytest.fixture
def gateway(
    state: Path, engines: list[RunningEngine], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Served]:
    replicas = []
    for number, one in enumerate(engines):
        monkeypatch.setenv(f"ENGINE_KEY_{number}", one.target.api_key or "")
        replicas.append(
            {
                "url": one.target.base_url,
                "name": f"r{number}",
                "model": "smol",
                "api_key_env": f"ENGINE_KEY_{number}",
                "max_in_flight": 2,
                "kv_tokens": "8Ki",
            }
        )
    model = {"replicas": replicas, "dialects": ["chat", "completions"], "routing": {"policy": request.param}}
    with served(config_of(state, model=model)) as made:
        yield made


@pytest.mark.parametrize("gateway", ["prefix"], indirect=True)
def test_real_engines_answer_in_every_dialect(gateway: Served) -> None:
    chat = gateway.chat("Say hello.", max_tokens=8)
    assert chat.status == 200, chat.body
    assert chat.json()["usage"]["completion_tokens"] <= 8
    assert gateway.chat("Say hello.", max_tokens=8, stream=True).body.rstrip().endswith(b"[DONE]")
    body = {"model": "fake", "max_tokens": 8, "stream": True, "messages": HELLO}
    assert b"message_stop" in gateway.call("POST", "/v1/messages", body).body
    assert b"response." in gateway.call("POST", "/v1/responses", {"model": "fake", "stream": True, "input": "Hi"}).body
    text = gateway.call("POST", "/v1/completions", {"model": "fake", "prompt": "One, two,", "max_tokens": 4})
    assert text.status == 200
    lines = gateway.ended(5)
    assert {line.outcome for line in lines} <= {"complete", "length"}
    assert not any(line.estimated for line in lines)


WORDS = (
    "river stone cloud amber quick lamp",
    "table green north silver piano clock",
    "winter bread engine coral light road",
)


def sessions(gateway: Served) -> tuple[int, int]:
    """Prompt and cached tokens of three sessions with nothing in common, four turns each, in turn."""
    for turn in range(4):
        for words in WORDS:
            assert gateway.chat(f"{words}. " * 70 + "And again. " * turn, max_tokens=2, stream=True).status == 200
    lines = gateway.ended(12)
    return sum(line.prompt_tokens for line in lines), sum(line.cached_tokens or 0 for line in lines)


@pytest.mark.parametrize("gateway", ["prefix"], indirect=True)
def test_turns_find_their_prefix_at_real_engines(gateway: Served) -> None:
    """Only the first turn of a session is computed whole."""
    prompt, cached = sessions(gateway)
    assert cached > prompt * 0.6
    receipts = gateway.lines()
    assert sum((line.predicted_tokens or 0) > 0 for line in receipts) == 9
    for session in range(len(WORDS)):  # where a session begins is a matter of its salted hash: both may be one replica
        assert len({line.replica for line in receipts[session :: len(WORDS)]}) == 1
    until(gateway.idle)
