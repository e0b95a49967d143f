"""From a folder or a file to a model, its licence, template and parsers."""

import json
import struct
from pathlib import Path

import pytest
from tests import shared
from tests.models.specs import stored

from setpoint.errors import ModelSpecError
from setpoint.models.licence import LICENCES, licence_named, licence_of_card
from setpoint.models.parsers import Parsers, parsers_of
from setpoint.models.resolve import model_from, model_of, spec_from


def shard(size: int) -> bytes:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [size], "data_offsets": [0, 2 * size]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * (2 * size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_bytes(shared.config("Qwen--Qwen3-0.6B"))
    (tmp_path / "model-1.safetensors").write_bytes(shard(10))
    (tmp_path / "model-2.safetensors").write_bytes(shard(20))
    weight_map = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    (tmp_path / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Card\n")
    return tmp_path


def test_a_folder_says_everything(folder: Path) -> None:
    model = model_from(folder)
    assert model.spec.parameters == pytest.approx(0.6e9, rel=0.01)
    assert model.checkpoint == {"BF16": 60}
    assert model.licence == LICENCES["apache-2.0"]
    assert model.chat_template is True
    assert model.parsers == Parsers("hermes", "qwen3")


def test_single_files_are_resolved(folder: Path) -> None:
    assert spec_from(folder / "config.json").hidden == 1024
    found = model_from(folder / "model-2.safetensors")
    assert found.checkpoint == {"BF16": 40}


def test_what_is_missing_is_said(folder: Path) -> None:
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(ModelSpecError, match=r"names model-2\.safetensors, which is not there"):
        model_from(folder)
    with pytest.raises(ModelSpecError, match="does not exist"):
        model_from(folder / "nothing")
    (folder / "config.json").unlink()
    with pytest.raises(ModelSpecError, match="which is not beside it"):
        model_from(folder / "model-1.safetensors")
    with pytest.raises(ModelSpecError, match=r"neither config\.json nor a GGUF file"):
        model_from(folder)


class Remote:
    """A repository that counts what is read of it."""

    name = "org/model"

    def __init__(self, folder: Path) -> None:
        self.folder, self.bytes = folder, 0

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def size(self, name: str) -> int | None:
        return (self.folder / name).stat().st_size

    def read(self, name: str, offset: int, length: int) -> bytes:
        found = (self.folder / name).read_bytes()[offset : offset + length]
        self.bytes += len(found)
        return found


def test_of_tensors_only_headers_are_read(folder: Path) -> None:
    (folder / "model-1.safetensors").write_bytes(shard(10**6))
    remote = Remote(folder)
    assert model_of(remote).checkpoint == {"BF16": 2 * 10**6 + 40}
    assert remote.bytes < 5000


@pytest.mark.parametrize(
    ("front", "id_", "commercial"),
    [
        ("license: mit", "mit", "yes"),
        ("license: other\nlicense_name: modified-mit", "modified-mit", "limited"),
        ("license: llama3.1", "llama3.1", "limited"),
        ("license: cc-by-nc-4.0", "cc-by-nc-4.0", "no"),
        ("license: [apache-2.0]", "apache-2.0", "yes"),
        ("license: home-made", "home-made", "unknown"),
    ],
)
def test_licences_and_their_limits(front: str, id_: str, commercial: str) -> None:
    licence = licence_of_card(f"---\n{front}\n---\n")
    assert licence is not None
    assert (licence.id, licence.commercial) == (id_, commercial)
    assert bool(licence.limit) or commercial == "yes"


@pytest.mark.parametrize("text", ["", "# no front matter", "---\n: : :\n---\n", "---\n- a\n---\n", "---\nx: 1\n---\n"])
def test_cards_without_a_licence_state_none(text: str) -> None:
    assert licence_of_card(text) is None


def test_spelling_of_licences_does_not_matter() -> None:
    assert licence_named("Apache 2.0").commercial == "yes"
    assert licence_named("home made").commercial == "unknown"
    assert licence_named("APACHE-2.0").commercial == "yes"


def test_parsers_are_known_by_type_and_name() -> None:
    assert parsers_of(stored("openai--gpt-oss-120b")) == Parsers("openai", "openai_gptoss")
    assert parsers_of(stored("deepseek-ai--DeepSeek-V3.2")).tools == "deepseek_v32"
    assert parsers_of(stored("blis--codellama-34b-instruct-hf")) == Parsers(None, None)
