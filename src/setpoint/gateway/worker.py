"""A worker process: ``python -m setpoint.gateway.worker CONFIG FOLDER INDEX WORKERS PORT``.

Ends by draining on SIGTERM or when its standard input closes (the supervisor is gone); a second word of the supervisor,
``AT_ONCE``, ends the drain. Reads the configuration again
on SIGHUP, and keeps the old one when the new one has mistakes.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from setpoint.client.limits import raise_open_files
from setpoint.errors import SetpointError
from setpoint.gateway.certificates import Certificates
from setpoint.gateway.config import Gateway
from setpoint.gateway.downstream import ServerConnection
from setpoint.gateway.identity import TokenVerifier
from setpoint.gateway.limits import LimitStore, SharedLimits
from setpoint.gateway.plane import Plane
from setpoint.gateway.reading import load_config
from setpoint.gateway.redis_limits import RedisLimits
from setpoint.gateway.shared import SharedTable
from setpoint.gateway.tokens import JwtVerifier

READY = "ready"
AT_ONCE = signal.SIGUSR1  # from the supervisor only, and after SIGTERM: the drain ends now
YOUNG = 20_000  # new containers that nothing has freed before the collector looks for cycles among them
_log = logging.getLogger(__name__)


def spare_collections() -> None:
    """What was loaded stays: the garbage collector need not look at it, nor at every few hundred new objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)


def listening(host: str, port: int, *, alone: bool = False) -> socket.socket:
    """A socket that shares its port with those of the other workers.

    Args:
        host: Address to bind.
        port: TCP port; 0 takes a free one.
        alone: Refuse a port on which anything listens already: another gateway would share it unseen.

    Raises:
        SetpointError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if alone and port:
            with socket.socket(family, socket.SOCK_STREAM) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind((host, port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise SetpointError(f"{host}:{port} cannot be used: {(error.strerror or 'no').lower()}.") from None
    return sock


def verifier(config: Gateway) -> TokenVerifier | None:
    """What checks bearer tokens, if any are accepted."""
    return JwtVerifier(config.auth.jwt) if config.auth.jwt is not None else None


def limits_of(config: Gateway, table: SharedTable) -> LimitStore:
    """Where allowances are kept."""
    return SharedLimits(table) if config.redis is None else RedisLimits(config.redis)


async def serve(path: str, folder: Path, table: SharedTable, port: int) -> None:
    """Serves until told to end."""
    config = load_config(path)
    loop = asyncio.get_running_loop()
    plane = Plane(config, table, folder, limits_of(config, table), verifier(config))
    certificates = None if config.listen.tls is None else Certificates(config.listen.tls)
    stop = asyncio.Event()

    def reload() -> None:
        try:
            new = load_config(path)
            plane.reload(new, verifier(new))
            if certificates is not None:
                certificates.renew()
        except SetpointError as error:
            _log.error("the configuration in force stays: %s", error)

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(AT_ONCE, plane.hurry)
    loop.add_signal_handler(signal.SIGHUP, reload)
    with contextlib.suppress(PermissionError):
        loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4096) else stop.set())
    sock = listening(config.listen.host, port)
    server = await loop.create_server(
        lambda: ServerConnection(plane),
        sock=sock,
        backlog=4096,
        ssl=None if certificates is None else certificates.context,
        ssl_handshake_timeout=None if certificates is None else config.http.header_timeout,
    )
    plane.begin()
    spare_collections()
    renewer = None if certificates is None else loop.create_task(_renew(certificates))
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    await stop.wait()
    server.close()
    if renewer is not None:
        renewer.cancel()
    await plane.drain(plane.snapshot.config.drain)


async def _renew(certificates: Certificates) -> None:
    while True:
        await asyncio.sleep(10)
        try:
            certificates.renew()
        except SetpointError as error:
            _log.error("the old certificate stays: %s", error)


def main() -> None:
    """Entry point of a worker process."""
    path, folder, index, workers, port = sys.argv[1:]
    logging.basicConfig(stream=sys.stderr, format="setpoint gateway: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the supervisor decides
    import uvloop  # noqa: PLC0415 - only the process that serves needs it

    with contextlib.suppress(SetpointError):
        raise_open_files(16_384)
    table = SharedTable(Path(folder) / "table", int(workers), int(index))
    uvloop.run(serve(path, Path(folder), table, int(port)))


if __name__ == "__main__":
    main()
