"""The fake engine, launched like any other: for tests, and to try a card without a model."""

import sys
from difflib import get_close_matches
from pathlib import Path

import msgspec

import setpoint
from setpoint.engines.adapter import Engine, Launch, Plan, whole
from setpoint.errors import EngineError, UsageError
from setpoint.testing.script import Script


def launch(plan: Plan) -> Launch:
    """Flags are members of ``setpoint.testing.script.Script``."""
    wanted: dict[str, object] = {"model": plan.served_name, "api_key": plan.api_key}
    for name, value in plan.flags.items():
        if name not in Script.__struct_fields__:
            near = get_close_matches(name, Script.__struct_fields__, n=3) or Script.__struct_fields__
            raise UsageError(f"The fake engine has no flag {name!r}.", fix=f"It has, for example, {', '.join(near)}.")
        try:
            wanted[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            wanted[name] = value
    try:
        script = msgspec.convert(wanted, Script)
    except msgspec.ValidationError as error:
        raise EngineError(f"The fake engine cannot be scripted so: {error}.") from None
    text = msgspec.json.encode(script).decode()
    argv = (sys.executable, "-m", "setpoint.testing.fake_engine", "--port", str(plan.port), "--script", text)
    return Launch(argv)


def facts(_: Path) -> dict[str, object]:
    """It has no model."""
    return {"precision": "none", "model_revision": "none"}


FAKE = Engine(
    name="fake",
    version=lambda: setpoint.__version__,
    missing="",
    launch=launch,
    start_limit_s=20.0,
    facts=facts,
    slots=lambda flags: whole(flags, "slots") or Script().slots,
    kv_tokens=lambda flags: whole(flags, "kv_tokens"),
)
