"""Thousands of requests of every kind against engines that fail in every way: what is held at the end is nothing."""

import json
import os
import random
import signal
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from tests.gateway.conftest import HELLO, Client, Whole, config_of, until, whole

from setpoint.gateway.shared import WORKER_CELLS, SharedTable
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, FaultKind, Script

ROUNDS, CLIENTS, EACH = 4, 8, 100


def leave(gateway: Client, body: bytes, patience_s: float) -> None:
    """A client that gives up."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    with gateway.raw() as sock:
        sock.sendall(head % len(body) + body)
        sock.settimeout(patience_s)
        with suppress(TimeoutError, OSError):
            sock.recv(4096)


def requests(gateway: Client, seed: int) -> Counter[int]:
    """One client's requests: streams and documents, good and bad, some left at a random moment."""
    seeded, seen = random.Random(seed), Counter[int]()
    for _ in range(EACH):
        kind = seeded.random()
        members: dict[str, Any] = {"stream": seeded.random() < 0.5, "max_tokens": seeded.randrange(1, 8)}
        if kind < 0.2:
            body = json.dumps({"model": "fake", "messages": HELLO} | members).encode()
            leave(gateway, body, 0.001 + seeded.random() * 0.03)
        elif kind < 0.25:
            seen[gateway.call("POST", "/v1/chat/completions", b'{"model":').status] += 1
        elif kind < 0.3:
            seen[gateway.chat(model="nothing", **members).status] += 1
        else:
            key = {"idempotency_key": f"{seed}-{seeded.randrange(50)}"} if kind < 0.4 else {}
            seen[gateway.chat("word " * seeded.randrange(1, 900), fields=key, **members).status] += 1
    return seen


def held(state: Path, workers: int) -> int:
    """What all rows of the shared memory say is under way, reserved or queued, in every worker."""
    table = SharedTable(state / "run" / "table", workers, -1)
    try:
        names = ["tenant:local", *(f"replica:fake:r{i}" for i in range(3))]
        return sum(abs(table.row(name).held(cell)) for name in names for cell in range(WORKER_CELLS))
    finally:
        table._rows.clear()
        table.close()


def memory(gateway: Whole) -> int:
    return sum(psutil.Process(pid).memory_info().rss for pid in gateway.status()["pids"])


def test_a_soak_ends_with_nothing_held_and_flat_memory(state: Path, tmp_path: Path) -> None:
    """One engine is frozen and thawed, one answers with every fault, one is well; then the frozen one is killed."""
    kinds = (FaultKind.RESET, FaultKind.TRUNCATE, FaultKind.FAIL, FaultKind.BUSY, FaultKind.EMPTY, FaultKind.GARBAGE)
    faults = tuple(Fault(kind=kind, first=number, every=17) for number, kind in enumerate(kinds))
    with ExitStack() as stack:
        scripts = (Script(decode_s=0.001), Script(decode_s=0.001, faults=faults), Script(decode_s=0.001))
        frozen, *others = (stack.enter_context(fake_engine(script)) for script in scripts)
        model = {
            "timeouts": {"first_byte": 0.5},
            "health": {"canary": 0.5, "canary_timeout": 0.5, "failures": 3, "cooldown": 0.2},
            "retries": {"attempts": 2, "budget": "100%"},
        }
        config = config_of(state, frozen.url, *(e.url for e in others), workers=2, model=model)
        config["tenants"]["local"] = {"limits": {"tokens_per_minute": "1000M", "streams": 100_000}}
        gateway = stack.enter_context(whole(tmp_path / "gateway.yaml", config))
        sizes, seen = [], Counter[int]()
        for number in range(ROUNDS):
            thaw = threading.Timer(1.0, os.kill, (frozen.pid, signal.SIGCONT))
            os.kill(frozen.pid, signal.SIGSTOP if number < ROUNDS - 1 else signal.SIGKILL)
            if number < ROUNDS - 1:
                thaw.start()
            with ThreadPoolExecutor(CLIENTS) as pool:
                for one in pool.map(lambda i, n=number: requests(gateway, n * CLIENTS + i), range(CLIENTS)):
                    seen += one
            if number < ROUNDS - 1:
                thaw.join()
            until(lambda: gateway.status()["in_flight"] == 0, 20)
            until(lambda: held(state, 2) == 0, 20)
            sizes.append(memory(gateway))
        assert seen[200] > ROUNDS * CLIENTS * EACH * 0.5
        assert set(seen) <= {200, 400, 404, 409, 422, 502, 503, 504}, seen
        assert sizes[-1] - sizes[1] < 24 * 2**20, sizes
        until(lambda: gateway.status()["connections"] == 0, 20)
        total = ROUNDS * CLIENTS * EACH
        until(lambda: sum(row["requests"] for row in gateway.usage()) > total * 0.8)
        assert not [line for line in gateway.said if "failed:" in line]  # no exchange broke by a fault of ours


def test_sockets_are_closed(state: Path, tmp_path: Path) -> None:
    """Workers have no more open files after a thousand requests than after a hundred."""
    with (
        fake_engine(Script()) as engine,
        whole(tmp_path / "gateway.yaml", config_of(state, engine.url, workers=1)) as gateway,
    ):
        (pid,) = gateway.status()["pids"]
        counts = []
        for _ in range(4):
            for _ in range(50):
                with gateway.raw() as sock:
                    sock.shutdown(socket.SHUT_RDWR)
            requests(gateway, 1)
            until(lambda: gateway.status()["connections"] == 0)
            counts.append(psutil.Process(pid).num_fds())
        assert counts[-1] <= counts[0] + 4, counts
