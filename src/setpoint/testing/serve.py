"""What the fake servers share: a loopback port, an announcement, and an end with their parent."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

ANNOUNCEMENT = "listening on "


async def serve(protocol: Callable[[], asyncio.Protocol], port: int) -> None:
    """Serves on 127.0.0.1 until SIGTERM, SIGINT or the end of standard input (the parent has gone)."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", port, backlog=4096)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with contextlib.suppress(PermissionError):  # standard input may be a file: then nobody is watching us
        loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4096) else stop.set())
    sys.stdout.write(f"{ANNOUNCEMENT}http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await stop.wait()
    server.close()


@contextlib.contextmanager
def running(
    module: str, arguments: Sequence[str] = (), *, limit_s: float = 60.0
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Runs ``python -m module`` as a child; yields its base URL and the process, and ends it.

    Raises:
        RuntimeError: the child ended, or ``limit_s`` passed, before it listened.
    """
    command = [sys.executable, "-m", module, *arguments]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
    try:
        assert child.stdout is not None
        watchdog = threading.Timer(limit_s, child.kill)
        watchdog.start()
        try:
            line = child.stdout.readline()
        finally:
            watchdog.cancel()
        if not line.startswith(ANNOUNCEMENT):
            raise RuntimeError(f"{module} did not start: {line!r}")
        yield line.removeprefix(ANNOUNCEMENT).strip(), child
    finally:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
