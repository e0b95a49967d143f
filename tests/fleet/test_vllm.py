"""A deployment on vLLM for real, from start to end; run by ``make test-vllm``.

One engine for the whole file, in the order of its tests: it takes most of a minute to load.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from tests.embedded import embedded_model
from tests.fleet.conftest import SOURCE, Serving, all_gone, deployment_of, serving
from tests.gateway.conftest import Answer, Client, until

from setpoint.gateway.health import cache_tokens
from setpoint.gateway.journal import Ended, read_line
from setpoint.protocol.sse import SSEReader

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
MODEL = "smol"
LOAD_S = 300.0
FLAGS = {"max-model-len": 2048, "max-num-seqs": 4, "enforce-eager": True, "kv-cache-memory-bytes": 2**27}


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    embedded_model()
    folder = tmp_path_factory.mktemp("serve")
    served = {"engine": "vllm", "model": "smollm2-135m-instruct", "flags": FLAGS, "kv_events": True}
    deployment = deployment_of(folder, tenants={"local": {}, "other": {}}, models={MODEL: served})
    with serving(folder, deployment) as made:
        made.ready(LOAD_S)
        yield made


def ask(client: Client, text: str = "Say one.", **members: Any) -> Any:
    """Usage of a whole answer."""
    answer = client.chat(text, model=MODEL, temperature=0, **members)
    assert answer.status == 200, answer.body
    return answer.json()["usage"]


def lines(serve: Serving) -> list[Ended]:
    """What the journals say of exchanges that have ended."""
    files = sorted((serve.folder / "state" / "run" / "journal").glob("*.jsonl"))
    read = [read_line(text) for file in files for text in file.read_bytes().splitlines()]
    return [line for line in read if isinstance(line, Ended)]


def found(client: Client, serve: Serving, text: str) -> tuple[int | None, int | None]:
    """Asks, and tells how much of the prompt was predicted to be cached, and how much the engine says that was."""
    before = len(lines(serve))
    told = ask(client, text)["prompt_tokens_details"]["cached_tokens"]
    line = until(lambda: lines(serve)[before:])[-1]
    assert line.cached_tokens == told
    return line.predicted_tokens, line.cached_tokens


def prompt(word: str, sentences: int = 90) -> str:
    """About five tokens a sentence: of 90, vLLM keeps three blocks of 128 tokens, and one KiB is believed to be 256."""
    return f"{word} is a number. " * sentences


def events(answer: Answer) -> list[Any]:
    """The JSON of a stream."""
    assert answer.status == 200, answer.body
    return [json.loads(one.payload) for one in SSEReader().feed(answer.body) if one.payload != b"[DONE]"]


def test_both_dialects_are_answered_and_accounted(serve: Serving) -> None:
    body = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Say one."}]}
    asked = {"prompt": "Once", "model": MODEL, "max_tokens": 4}
    usages = [ask(serve), serve.call("POST", "/v1/completions", asked).json()["usage"]]
    streamed = body | {"stream": True, "stream_options": {"include_usage": True}}
    chunks = events(serve.call("POST", "/v1/chat/completions", streamed))
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    usages.append(chunks[-1]["usage"])
    message = serve.call("POST", "/v1/messages", body).json()
    assert (message["type"], message["stop_reason"]) == ("message", "max_tokens")
    assert message["content"][0]["text"]
    parts = events(serve.call("POST", "/v1/messages", body | {"stream": True}))
    assert [parts[0]["type"], parts[-1]["type"]] == ["message_start", "message_stop"]
    assert "".join(one["delta"]["text"] for one in parts if one["type"] == "content_block_delta")
    told = [message["usage"], next(one for one in parts if one["type"] == "message_delta")["usage"]]
    usages += [{"prompt_tokens": one["input_tokens"], "completion_tokens": one["output_tokens"]} for one in told]
    assert all(one["prompt_tokens"] > 0 and one["completion_tokens"] == 4 for one in usages)

    def accounted() -> Any:
        rows = serve.admin.call("GET", "/usage?by=model,tenant").json()
        return rows[0] if rows and rows[0]["requests"] == len(usages) else None

    row = until(accounted)
    assert row["group"] == {"model": MODEL, "tenant": "local"}
    assert row["estimated"] == 0
    for kind in ("prompt_tokens", "completion_tokens"):
        assert row[kind] == sum(one[kind] for one in usages)


def test_the_cache_is_as_large_as_the_engine_says(serve: Serving) -> None:
    """Of the 128 MiB that its flag names: not the gateway's default, and not what vLLM would take of this machine."""
    engine = Client(int(serve.ready()["replicas"][0]["url"].rpartition(":")[2]))
    tokens = cache_tokens(engine.call("GET", "/metrics").body)
    assert 0 < tokens < 8192
    until(lambda: serve.admin.call("GET", "/status").json()["replicas"][0]["kv_tokens"] == tokens, 30)


def test_events_say_what_the_engine_finds_cached(serve: Serving) -> None:
    """Predicted before the request is sent, from the engine's events alone, and confirmed by its own usage."""
    text = prompt("Alpha")
    assert found(serve, serve, text)[1] == 0
    until(lambda: found(serve, serve, text) == (384, 384), 60)
    until(lambda: found(serve, serve, text + "Why?") == (384, 384), 60)
    assert found(serve, serve, prompt("Beta")) == (0, 0)
    command = [sys.executable, "-m", "setpoint", "keys", "create", "other", "-c", "deployment.yaml"]
    environment = os.environ | {"PYTHONPATH": SOURCE}
    made = subprocess.run(command, cwd=serve.folder, env=environment, capture_output=True, text=True, check=True)
    assert found(Client(serve.port, made.stdout.strip()), serve, text) == (0, 0)  # its cache salt is another


def test_events_tell_of_evictions(serve: Serving) -> None:
    text = prompt("Gamma")
    ask(serve, text)
    until(lambda: found(serve, serve, text) == (384, 384), 60)
    for number in range(16):  # more than the cache holds
        ask(serve, prompt(f"Number {number}"))
    assert found(serve, serve, text) == (0, 0)
    until(lambda: found(serve, serve, text) == (384, 384), 60)


def processes(serve: Serving) -> dict[str, psutil.Process]:
    """The engine's: its server, and those that compute, which vLLM gives names of their own."""
    (server,) = serve.engines()
    below = server.children(recursive=True)
    named = {kind: [one for one in below if one.name().startswith(f"VLLM::{kind}")] for kind in ("EngineCor", "Worker")}
    return {"server": server} | {kind: one for kind, (one,) in named.items()}


@pytest.mark.parametrize("which", ["server", "EngineCor", "Worker"])
def test_a_killed_process_is_told_and_the_engine_started_again(serve: Serving, which: str) -> None:
    """The death of a process that computes ends the server, with exit code 0."""
    before = processes(serve)
    serve.said.clear()
    before[which].kill()
    serve.hears("killed by signal 9" if which == "server" else "the process that computes (EngineCore) has died")
    serve.hears("is down; restart")
    until(lambda: serve.states() == ["up"], LOAD_S)
    assert not [one for one in before.values() if one.is_running()]
    assert processes(serve)["server"].pid != before["server"].pid
    text = prompt("Alpha")
    assert found(serve, serve, text)[1] == 0  # its cache is another
    until(lambda: found(serve, serve, text) == (384, 384), 60)


def test_ctrl_c_leaves_no_process(serve: Serving) -> None:
    family = serve.family()
    assert len(processes(serve)) == 3
    serve.process.send_signal(signal.SIGINT)
    assert serve.process.wait(60) == 0
    all_gone(family)
    assert serve.hears("every engine has ended")
