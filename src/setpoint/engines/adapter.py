"""What an engine must tell: one instance an engine, see ``registry``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Flags = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to run.

    Attributes:
        argv: The command.
        env: Variables added to the environment.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """One engine to be started.

    Attributes:
        model: Model file or folder.
        served_name: Name that requests use.
        port: On 127.0.0.1.
        api_key: Random; the engine must demand it.
        flags: The user's flags, passed through and pinned.
    """

    model: Path
    served_name: str
    port: int
    api_key: str
    flags: Flags


@dataclass(frozen=True, slots=True)
class Cause:
    """A line in an engine's log that explains its death.

    Attributes:
        pattern: Regular expression.
        meaning: In words.
        fix: What to do.
    """

    pattern: str
    meaning: str
    fix: str

    def found_in(self, log: str) -> bool:
        """Whether the log shows it."""
        return re.search(self.pattern, log, re.IGNORECASE) is not None


OUT_OF_MEMORY = Cause(
    r"out of memory|bad_alloc|failed to allocate|cannot allocate memory|OutOfMemoryError|unable to allocate",
    "it ran out of memory",
    "Use a smaller model or context, or fewer slots.",
)
PORT_TAKEN = Cause(
    r"address already in use|couldn't bind|failed to bind|EADDRINUSE|error while attempting to bind",
    "its port is taken",
    "Choose another --port, or none.",
)
COMMON_CAUSES = (OUT_OF_MEMORY, PORT_TAKEN)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that Setpoint can start.

    Attributes:
        name: As written on the command line and in pins.
        version: Installed version; None when it is not installed.
        missing: What to tell the user when it is not installed.
        launch: From plan to command.
        causes: Log lines that explain its death, beside the common ones.
        start_limit_s: How long it may take until its first token.
        facts: Facts about a model file for the pins (precision, revision).
        default_flags: Flags that are pinned although the user gave none.
        slots: Requests that it serves at once under these flags; None when they do not say.
        kv_tokens: Tokens that its KV cache holds under these flags; None when only the running engine knows.
        threads: Flag that sets its compute threads; None when it has none.
        cores: Variable that binds its compute threads to cores; None when it has none.
        accelerators: GPUs that one replica takes under these flags, where it computes on GPUs.
        kv_events: Flags with which it tells what its prefix cache holds, at ZMQ addresses of its events and of their
            replay; None when it cannot.
        noise: Regular expression of log lines that say nothing about a death; None shows all.
    """

    name: str
    version: Callable[[], str | None]
    missing: str
    launch: Callable[[Plan], Launch]
    causes: tuple[Cause, ...] = ()
    start_limit_s: float = 120.0
    facts: Callable[[Path], Mapping[str, object]] = lambda _: {}
    default_flags: Callable[[], Flags] = dict
    slots: Callable[[Flags], int | None] = lambda _: None
    kv_tokens: Callable[[Flags], int | None] = lambda _: None
    threads: str | None = None
    cores: str | None = None
    accelerators: Callable[[Flags], int] = lambda _: 0
    kv_events: Callable[[str, str], Flags] | None = None
    noise: str | None = None


def whole(flags: Flags, name: str) -> int | None:
    """A flag's whole number; None where it is absent or none."""
    text = flags.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
