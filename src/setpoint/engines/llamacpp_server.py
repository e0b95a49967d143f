"""The child process that is llama.cpp: ``python -m setpoint.engines.llamacpp_server MODEL NAME PORT [FLAG=VALUE…]``.

``xllamacpp`` embeds the server in a process and has no command line of its own. Flags are attributes of its
``CommonParams`` (``n_parallel``, ``n_ctx``, ``n_batch``, ``n_ubatch``, ``cache_type_k`` …) and ``n_threads``.
"""

import os
import signal
import sys
import threading
from typing import Any


def convert(current: Any, text: str) -> Any:  # noqa: ANN401 - whatever type the attribute has
    """The text as a value of the attribute's type.

    Raises:
        ValueError: it is none.
    """
    if isinstance(current, bool):
        if text.lower() not in ("true", "false", "0", "1"):
            raise ValueError("expected true or false")
        return text.lower() in ("true", "1")
    if isinstance(current, int | float) and not hasattr(current, "name"):
        return type(current)(text)
    members = getattr(type(current), "__members__", None)
    if members is not None:
        found = [member for name, member in members.items() if name.lower().endswith(f"_{text.lower()}")]
        if not found:
            raise ValueError(f"expected one of {', '.join(name.lower() for name in members)}")
        return found[0]
    return text


def main() -> None:
    """Serves until it is told to end."""
    import xllamacpp  # noqa: PLC0415 - an extra, and heavy

    model, name, port, *flags = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.api_keys = [os.environ.pop("SETPOINT_ENGINE_KEY")]
    params.cors_origins = ""
    params.endpoint_metrics = True
    params.n_parallel = 1
    for flag in flags:
        key, _, value = flag.partition("=")
        holder = params.cpuparams if key == "n_threads" else params
        if not hasattr(holder, key):
            raise SystemExit(f"unknown flag {key}")
        try:
            setattr(holder, key, convert(getattr(holder, key), value))
        except ValueError as error:
            raise SystemExit(f"unknown flag value {key}={value}: {error}") from None
    if not os.path.isfile(model):  # noqa: PTH113 - told before the engine's own, longer words
        raise SystemExit(f"failed to load model: {model} is not a file")
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise SystemExit(f"failed to load model or to listen: {error}") from None
    sys.stderr.write(f"listening on {server.listening_address}\n")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    stop.wait()


if __name__ == "__main__":
    main()
