"""A spec from a Hub repository: headers only, over ranges, with one clear message when it cannot be."""

import json
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.hub_server import TOKEN, Hub, serving
from tests.models.folders import QWEN_MOE

from setpoint.engines.hub import model_named
from setpoint.errors import EngineError, ModelSpecError, SetpointError, UsageError
from setpoint.models.resolve import model_from

SHARD_DATA = 3_000_000


def shard(size: int = SHARD_DATA) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * size


def repository() -> dict[str, bytes]:
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    index = {"weight_map": {f"w{i}": name for i, name in enumerate(names)}}
    return {
        "config.json": (QWEN_MOE / "config.json").read_bytes(),
        "README.md": (QWEN_MOE / "README.md").read_bytes(),
        "tokenizer_config.json": b'{"chat_template": "x"}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{name: shard() for name in names},
    }


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Hub]]:
    running = []

    def begin(files: dict[str, bytes], **how: object) -> Hub:
        context = serving(Hub(files, **how))  # type: ignore[arg-type]
        running.append(context)
        hub = context.__enter__()
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        return hub

    yield begin
    for context in running:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("name", ["acme/tiny", "hf://acme/tiny", "hf://acme/tiny@v1.0"])
def test_headers_alone_cross_the_wire(start: Callable[..., Hub], name: str) -> None:
    files = repository()
    hub = start(files)
    model = model_named(name)
    assert model.spec == replace(model_from(QWEN_MOE).spec, name="acme/tiny")
    assert model.checkpoint == {"U8": 3 * SHARD_DATA}
    assert model.licence is not None
    assert model.licence.id == "apache-2.0"
    assert model.chat_template is True
    small = sum(len(c) for n, c in files.items() if not n.endswith(".safetensors"))
    headers = 3 * (len(shard()) - SHARD_DATA)
    assert hub.sent == small + headers + len(hub.listed())
    assert {path for _, path, _, _ in hub.asked if "revision" in path} == {
        f"/api/models/acme/tiny/revision/{'v1.0' if '@' in name else 'main'}"
    }


def test_a_token_stays_with_the_hub(start: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    hub = start(repository(), gated=True)
    with pytest.raises(UsageError, match="private, gated, or does not exist") as caught:
        model_named("acme/tiny")
    assert "HF_TOKEN" in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert model_named("acme/tiny").spec.layers
    bearers = {(role, bearer) for role, path, _, bearer in hub.asked if path.startswith("/acme") or role == "storage"}
    assert bearers == {("hub", f"Bearer {TOKEN}"), ("storage", "")}


def test_a_server_without_ranges_serves_small_headers_too(start: Callable[..., Hub]) -> None:
    start(repository(), ranges=False)
    assert model_named("acme/tiny").checkpoint == {"U8": 3 * SHARD_DATA}


def hostile() -> bytes:
    return struct.pack("<Q", 2**62) + b"{}"


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"files": {"a.txt": b""}}, ModelSpecError, "neither config.json nor a GGUF file"),
        ({"files": {**repository(), "model-00002-of-00003.safetensors": hostile()}}, ModelSpecError, "claims a header"),
        ({"files": {**repository(), "model-00002-of-00003.safetensors": b"\1"}}, ModelSpecError, "truncated"),
        ({"listing": b"<html>"}, EngineError, "no list of the files"),
        ({"listing": b"[" * 100_000}, EngineError, "no list of the files"),
        ({"listing": b'{"siblings": 3}'}, EngineError, "lists no files"),
    ],
)
def test_nonsense_is_one_message(
    start: Callable[..., Hub], changed: dict[str, object], error: type[SetpointError], message: str
) -> None:
    start(**{"files": repository(), **changed})
    with pytest.raises(error, match=message):
        model_named("acme/tiny")


def test_what_is_not_there(start: Callable[..., Hub]) -> None:
    start(repository())
    with pytest.raises(UsageError, match="The Hub has no model 'acme/other'"):
        model_named("acme/other")


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(EngineError, match="cannot be reached: connection refused") as caught:
            model_named("acme/tiny")
    assert "local folder" in caught.value.fix


@pytest.mark.parametrize(
    "name", ["./missing", "missing/config.json", "no such thing", "a/b/c/d", "smollm2-135m-instruct"]
)
def test_a_name_of_nothing_asks_nobody(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("SETPOINT_HOME", str(tmp_path))
    monkeypatch.setattr("setpoint.engines.hub.cached", lambda: iter(()))
    with pytest.raises(UsageError):
        model_named(name)
