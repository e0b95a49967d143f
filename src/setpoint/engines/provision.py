"""The files that an engine loads for a model: fetched, and converted where the engine reads another format."""

from pathlib import Path

from setpoint.engines.adapter import Engine
from setpoint.engines.environments import checkpoint_of
from setpoint.engines.files import home, sha256_of
from setpoint.engines.store import EMBEDDED, HUB, Listen, Model, resolve


def provide(engine: Engine, name: str, listen: Listen = lambda _: None) -> Model:
    """A model as files that the engine loads; the fake engine needs none.

    Args:
        engine: Which.
        name: Embedded name, path, or ``hf://org/name[@revision]``.
        listen: Takes sentences about what takes time.

    Raises:
        UsageError: no such model.
        EngineError: it cannot be fetched or converted.
    """
    if engine.name == "fake":
        return Model(name, Path(), {})
    model = resolve(name, listen)
    if engine.name == "vllm" and model.path.suffix == ".gguf":
        pins = model.pins | {"converted_from": f"sha256:{sha256_of(model.path)}"}
        return Model(model.name, checkpoint_of(model.path, engine.name, listen), pins)
    return model


def expected_path(engine: Engine, name: str) -> Path:
    """Where ``provide`` would find or put the files, without fetching anything; an address of the Hub stays one."""
    if engine.name == "fake" or name.startswith(HUB):
        return Path(name) if name.startswith(HUB) else Path()
    path = Path(name).absolute()
    if name in EMBEDDED:
        path = home() / "models" / name / Path(EMBEDDED[name].member).name
    return path.parent / f"{path.stem}-bf16" if engine.name == "vllm" and path.suffix == ".gguf" else path
