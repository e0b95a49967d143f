"""From the files of a model to everything known about it, whether they lie in a folder or on the Hub.

This package reaches no network: a caller that does hands in a :class:`Repository` of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from setpoint.errors import ModelSpecError
from setpoint.models.config import spec_from_config
from setpoint.models.fields import LARGEST_FILE, Fields, read_json
from setpoint.models.gguf_spec import spec_from_gguf
from setpoint.models.licence import Licence, licence_of_card
from setpoint.models.parsers import Parsers, parsers_of
from setpoint.models.safetensors_header import ReadRange, Tensor, bytes_by_dtype, read_header, read_index
from setpoint.models.spec import ModelSpec


class Repository(Protocol):
    """The files of one model."""

    name: str

    def names(self) -> Sequence[str]:
        """File names at the top level."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when not known."""
        ...

    def read(self, name: str, offset: int, length: int) -> bytes:
        """A range of a file; fewer bytes at its end."""
        ...


@dataclass(frozen=True, slots=True)
class Model:
    """Everything that a model's files say.

    Attributes:
        spec: The model spec.
        checkpoint: Bytes by type, from the headers of the checkpoint; None when there is no checkpoint.
        licence: From the model card; None when there is none.
        chat_template: Whether there is one; None when the tokenizer's files are not there.
        parsers: Tool-call and reasoning parsers.
    """

    spec: ModelSpec
    checkpoint: Mapping[str, int] | None
    licence: Licence | None
    chat_template: bool | None
    parsers: Parsers


class Folder:
    """A local folder as a repository."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.resolve().name

    def names(self) -> Sequence[str]:
        """File names, sorted."""
        return sorted(entry.name for entry in self.path.iterdir() if entry.is_file())

    def size(self, name: str) -> int | None:
        """Bytes of a file."""
        return (self.path / name).stat().st_size

    def read(self, name: str, offset: int, length: int) -> bytes:
        """A range of a file."""
        with (self.path / name).open("rb") as file:
            file.seek(offset)
            return file.read(length)


def spec_from(path: Path | str) -> ModelSpec:
    """The spec of a local model: a folder, a ``config.json``, a ``*.safetensors`` or a ``*.gguf`` file.

    Raises:
        ModelSpecError: there is nothing there that is understood.
    """
    return model_from(path).spec


def model_from(path: Path | str) -> Model:
    """Like :func:`spec_from`, with what else the files beside it say."""
    place = Path(path)
    if place.is_dir():
        return model_of(Folder(place))
    if not place.is_file():
        raise ModelSpecError(f"{path} does not exist.", fix="Give a folder, config.json, *.safetensors or *.gguf file.")
    folder = Folder(place.parent)
    if place.suffix == ".gguf":
        return _gguf(folder, place.name)
    if place.suffix == ".safetensors":
        if "config.json" not in folder.names():
            raise ModelSpecError(
                f"{path} has tensors, but the layers are described by a config.json, which is not beside it.",
                fix="Put the model's config.json into the same folder.",
            )
        return _described(folder, "config.json", (place.name,))
    if place.suffix == ".json":
        return _described(folder, place.name, ())
    raise ModelSpecError(f"{path} is no model file.", fix="Give a folder, config.json, *.safetensors or *.gguf file.")


def model_of(files: Repository, gguf: str = "") -> Model:
    """Everything that the files of a repository say; of tensors only headers are read.

    Args:
        files: The repository.
        gguf: The GGUF file that is meant, where there are several.

    Raises:
        ModelSpecError: there is neither a ``config.json`` nor a ``.gguf`` file, or they are not understood.
    """
    names = files.names()
    if gguf:
        return _gguf(files, gguf)
    if "config.json" in names:
        shards: tuple[str, ...] = tuple(name for name in names if name.endswith(".safetensors"))
        if "model.safetensors.index.json" in names:
            shards = read_index(_whole(files, "model.safetensors.index.json"), "model.safetensors.index.json")
            missing = [shard for shard in shards if shard not in names]
            if missing:
                raise ModelSpecError(f"{files.name}: the index names {missing[0]}, which is not there.")
        return _described(files, "config.json", shards)
    models = [name for name in names if name.endswith(".gguf") and "mmproj" not in name]
    if len(models) == 1:
        return _gguf(files, models[0])
    if models:
        raise ModelSpecError(f"{files.name} has {len(models)} GGUF files.", fix=f"Name one, e.g. {models[0]}.")
    raise ModelSpecError(f"{files.name} has neither config.json nor a GGUF file.", fix="Check the path or the name.")


def _described(files: Repository, config: str, shards: tuple[str, ...]) -> Model:
    names = files.names()
    apart = "hf_quant_config.json"
    spec = spec_from_config(
        _whole(files, config),
        quantization=_whole(files, apart) if config == "config.json" and apart in names else None,
        name=files.name if config == "config.json" else config.removesuffix(".json"),
        where=config,
    )
    tensors: list[Tensor] = []
    for shard in shards:
        tensors.extend(read_header(_ranges(files, shard), shard, files.size(shard)))
    return Model(spec, bytes_by_dtype(tensors) if shards else None, _licence(files), _template(files), parsers_of(spec))


def _gguf(files: Repository, name: str) -> Model:
    spec = spec_from_gguf(_ranges(files, name), name, name.removesuffix(".gguf"))
    totals: dict[str, int] = {}
    for weight in spec.weights:
        form = spec.format_of(weight)
        totals[form.name] = totals.get(form.name, 0) + round(spec.bytes_of(weight))
    return Model(spec, totals, _licence(files), _template(files), parsers_of(spec))


def _ranges(files: Repository, name: str) -> ReadRange:
    return lambda offset, length: files.read(name, offset, length)


def _whole(files: Repository, name: str) -> bytes:
    return files.read(name, 0, LARGEST_FILE + 1)


def _licence(files: Repository) -> Licence | None:
    if "README.md" not in files.names():
        return None
    return licence_of_card(files.read("README.md", 0, 2**16).decode("utf-8", "replace"))


def _template(files: Repository) -> bool | None:
    names = files.names()
    if "chat_template.jinja" in names or "chat_template.json" in names:
        return True
    if "tokenizer_config.json" not in names:
        return None
    where = "tokenizer_config.json"
    return Fields(read_json(_whole(files, where), where), where).has("chat_template")
