"""Every engine that can be started. A new one is a file and a line here."""

from setpoint.engines.adapter import Engine
from setpoint.engines.fake import FAKE
from setpoint.engines.llamacpp import LLAMACPP
from setpoint.engines.vllm import VLLM
from setpoint.errors import UsageError

ENGINES = {engine.name: engine for engine in (LLAMACPP, VLLM, FAKE)}


def engine_named(name: str) -> Engine:
    """The engine of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in ENGINES:
        raise UsageError(f"There is no engine {name!r}.", fix=f"Choose one of: {', '.join(ENGINES)}.")
    return ENGINES[name]
