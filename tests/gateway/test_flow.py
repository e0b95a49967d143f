"""Clients that leave, engines that fail: nothing is left behind, and nothing is made up."""

import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.gateway.conftest import HELLO, config_of, read_all, served, until
from tests.gateway.upstream import GOOD, chunked, good, reset, upstream

from setpoint.gateway.gate import Gate, Lease, Ticket
from setpoint.protocol.conformance import say, sse
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, FaultKind, Script


def post(**members: object) -> bytes:
    body = json.dumps({"model": "fake", "messages": HELLO, "stream": True} | members).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_the_first_token_ends_the_engines_work(state: Path, stream: bool) -> None:
    def silent(sock: socket.socket, request: bytes) -> bool:
        return sock.recv(1) != b""

    with upstream(silent) as engine, served(config_of(state, engine.url)) as gateway:
        with gateway.raw() as sock:
            sock.sendall(post(stream=stream))
            until(lambda: engine.requests)
        until(lambda: engine.gone == 1)
        until(gateway.idle)
        assert gateway.ended()[-1].outcome == "cancelled"


def test_a_client_that_leaves_within_a_stream_ends_the_engines_work(state: Path) -> None:
    def half(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(sse(say("Hi")), end=False))
        return sock.recv(1) != b""

    with upstream(half) as engine, served(config_of(state, engine.url)) as gateway:
        with gateway.raw() as sock:
            sock.sendall(post())
            assert b"Hi" in until(lambda: sock.recv(65536))
        until(lambda: engine.gone == 1)
        until(gateway.idle)


def test_a_client_that_leaves_the_queue_is_forgotten(state: Path) -> None:
    def silent(sock: socket.socket, request: bytes) -> bool:
        return sock.recv(1) != b""

    with upstream(silent) as engine:
        config = config_of(state, engine.url)
        config["models"]["fake"]["replicas"][0]["max_in_flight"] = 1
        with served(config) as gateway, gateway.raw() as first:
            first.sendall(post())
            until(lambda: engine.requests)
            with gateway.raw() as second:
                second.sendall(post())
                until(lambda: len(gateway.plane.exchanges) == 2)
            until(lambda: len(gateway.plane.exchanges) == 1)
            assert len(engine.requests) == 1
    until(gateway.idle)


def test_a_thousand_clients_that_leave_at_random_points_leave_nothing_behind(state: Path) -> None:
    seeded = random.Random(7)
    with ExitStack() as stack:
        engines = [
            stack.enter_context(fake_engine(Script(decode_s=0.002, output_tokens=32, slots=64))) for _ in range(2)
        ]
        gateway = stack.enter_context(served(config_of(state, *(e.url for e in engines))))
        plans = [(seeded.random() * 0.12, seeded.random() < 0.5, seeded.randrange(3)) for _ in range(1000)]

        def client(mine: list[tuple[float, bool, int]]) -> None:
            for patience_s, stream, manner in mine:
                with gateway.raw() as sock:
                    data = post(stream=stream, max_tokens=32)
                    sock.sendall(data[: len(data) // 2] if manner == 0 else data)
                    sock.settimeout(patience_s)
                    try:
                        while sock.recv(256):
                            pass
                    except (TimeoutError, OSError):
                        pass
                    if manner == 2:
                        reset(sock)

        threads = [threading.Thread(target=client, args=(plans[i::25],)) for i in range(25)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        until(gateway.idle)
        until(lambda: not gateway.plane.connections)
        lines = {line.id: line for line in gateway.lines() if line.id}
        assert {line.outcome for line in lines.values()} <= {"complete", "length", "cancelled"}
        assert any(line.outcome == "cancelled" for line in lines.values())
        assert gateway.chat(stream=True).status == 200


def test_a_connection_that_the_engine_closed_while_idle_costs_nothing(state: Path) -> None:
    """The engine closes at the moment of the next request; nothing of it was answered, so it is sent again."""

    def once(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(GOOD))
        sock.settimeout(5)
        sock.recv(10)  # the next request begins: gone without an answer
        reset(sock)
        return False

    with upstream(once) as engine, served(config_of(state, engine.url)) as gateway:
        assert [gateway.chat(stream=True).status for _ in range(5)] == [200] * 5
        assert len(engine.requests) == 5
        assert gateway.ended(5)[-1].attempts == 1


def test_an_engine_that_held_a_request_and_then_closed_has_failed_it(state: Path) -> None:
    """On a kept connection too: sending it again in silence would hide a request that kills engines."""

    def crash(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(GOOD))
        sock.settimeout(5)
        sock.recv(10)
        time.sleep(1.3)
        reset(sock)
        return False

    with upstream(crash) as engine, served(config_of(state, engine.url, model={"retries": {"attempts": 1}})) as gateway:
        assert [gateway.chat(stream=True).status for _ in range(2)] == [200, 502]
        assert len(engine.requests) == 1


def test_a_request_is_not_repeated_once_a_byte_was_answered(state: Path) -> None:
    def cut(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(b"HTTP/1.1 200")
        time.sleep(0.05)
        reset(sock)
        return False

    with upstream(cut) as engine, served(config_of(state, engine.url, model={"retries": {"attempts": 1}})) as gateway:
        assert gateway.chat(stream=True).status == 502
        assert len(engine.requests) == 1


@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.BUSY, FaultKind.GARBAGE, FaultKind.REJECT])
def test_a_failure_before_the_first_byte_is_tried_on_another_replica(state: Path, kind: FaultKind) -> None:
    bad, healthy = Script(faults=(Fault(kind=kind),)), Script()
    with fake_engine(bad) as one, fake_engine(healthy) as two:
        config = config_of(state, one.url, two.url, model={"routing": {"policy": "round-robin"}})
        with served(config) as gateway:
            assert gateway.chat(stream=True).status == 200
            line = gateway.ended()[-1]
            assert (line.attempts, line.replica) == (2, "r1")


def test_retries_have_a_budget(state: Path) -> None:
    with ExitStack() as stack:
        bad = [stack.enter_context(fake_engine(Script(faults=(Fault(kind=FaultKind.FAIL),)))) for _ in range(2)]
        model = {"retries": {"attempts": 2, "budget": "10%"}, "health": {"canary": 0, "failures": 1000}}
        gateway = stack.enter_context(served(config_of(state, *(e.url for e in bad), model=model)))
        assert {gateway.chat().status for _ in range(60)} == {502}
        attempts = sum(line.attempts for line in gateway.ended(60))
        assert 60 < attempts <= 60 + 10 + 6


def test_nothing_is_repeated_after_the_first_byte(state: Path) -> None:
    cut, healthy = Script(faults=(Fault(kind=FaultKind.TRUNCATE),)), Script()
    with fake_engine(cut) as one, fake_engine(healthy) as two:
        config = config_of(state, one.url, two.url, model={"routing": {"policy": "round-robin"}})
        with served(config) as gateway:
            got = gateway.chat(stream=True)
            assert b'"code":"truncated"' in got.body
            assert b"[DONE]" not in got.body
            line = gateway.ended()[-1]
            assert (line.attempts, line.outcome, line.status, line.sent_status) == (1, "truncated", 502, 200)


def test_a_frozen_replica_harms_nobody_but_its_own_requests(state: Path) -> None:
    with fake_engine(Script()) as one, fake_engine(Script()) as two:
        model = {
            "routing": {"policy": "round-robin"},
            "timeouts": {"first_byte": 0.5},
            "health": {"canary": 0, "failures": 2, "cooldown": "60s"},
        }
        with served(config_of(state, one.url, two.url, model=model)) as gateway:
            os.kill(one.pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                answers = [gateway.chat(stream=True).status for _ in range(20)]
                assert set(answers) == {200}  # each hung attempt was tried again elsewhere
                assert time.monotonic() - began < 10  # and after two of them the frozen one gets nothing
                assert [line.attempts for line in gateway.ended(20)].count(2) == 2
            finally:
                os.kill(one.pid, signal.SIGCONT)


def test_a_killed_replica_ends_its_streams_with_an_error_event(state: Path) -> None:
    with (
        fake_engine(Script(decode_s=0.05, output_tokens=100)) as engine,
        served(config_of(state, engine.url)) as gateway,
    ):
        with gateway.raw() as sock:
            sock.sendall(post(max_tokens=100, stream=True).replace(b"host: x", b"host: x\r\nconnection: close"))
            got = until(lambda: sock.recv(65536))
            os.kill(engine.pid, signal.SIGKILL)
            got += read_all(sock)
        assert b'"code":"truncated"' in got
        assert got.endswith(b"0\r\n\r\n")
        assert b"[DONE]" not in got
        assert gateway.ended()[-1].outcome == "truncated"


def test_a_slow_replica_gets_less_and_its_answers_are_whole(state: Path) -> None:
    """Load counts what is under way, so that a replica that takes long is asked seldom."""
    late = Script(faults=(Fault(kind=FaultKind.SLOW, seconds=1.5),))
    with fake_engine(late) as one, fake_engine(Script(decode_s=0.001)) as two:
        config = config_of(state, one.url, two.url, model={"routing": {"policy": "least-loaded"}})
        with served(config) as gateway, ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: gateway.chat(stream=True), range(60)))
            assert {a.status for a in answers} == {200}
            assert all(a.body.endswith(b"data: [DONE]\n\n") for a in answers)
            used = Counter(line.replica for line in gateway.ended(60))
            assert 0 < used["r0"] < used["r1"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_silent_stream_is_kept_alive_in_its_dialect(state: Path, path: str) -> None:
    with fake_engine(Script(faults=(Fault(kind=FaultKind.STALL, seconds=1.0),))) as engine:
        with served(config_of(state, engine.url, model={"timeouts": {"ping": 0.2}})) as gateway:
            body = {"model": "fake", "stream": True, "messages": HELLO, "max_tokens": 8}
            got = gateway.call("POST", path, body)
    sign = b": ping\n\n" if path.endswith("completions") else b'event: ping\ndata: {"type":"ping"}\n\n'
    assert got.body.count(sign) >= 2
    assert got.body.rstrip().endswith(b"[DONE]" if path.endswith("completions") else b'{"type":"message_stop"}')


def test_pings_begin_before_the_engine_has_said_anything(state: Path) -> None:
    def late(sock: socket.socket, request: bytes) -> bool:
        time.sleep(0.8)
        sock.sendall(chunked(GOOD))
        return True

    with upstream(late) as engine, served(config_of(state, engine.url, model={"timeouts": {"ping": 0.2}})) as gateway:
        got = gateway.chat(stream=True)
    assert got.body.startswith(b": ping\n\n")
    assert got.body.endswith(b"data: [DONE]\n\n")


def test_a_failure_after_a_ping_is_an_error_event(state: Path) -> None:
    def late(sock: socket.socket, request: bytes) -> bool:
        time.sleep(0.6)
        sock.sendall(chunked(b"{}", status=500, kind="application/json"))
        return True

    with upstream(late) as engine, served(config_of(state, engine.url, model={"timeouts": {"ping": 0.2}})) as gateway:
        got = gateway.chat(stream=True)
        assert got.status == 200
        assert b'"error"' in got.body
        assert b"[DONE]" not in got.body
        assert gateway.ended()[-1].status == 502


@pytest.mark.parametrize(
    ("limits", "fault", "within"),
    [
        ({"first_byte": 0.3}, Fault(kind=FaultKind.FREEZE), "first byte"),
        ({"gap": 0.3}, Fault(kind=FaultKind.STALL, seconds=30), "gap"),
        ({"total": 0.5}, Fault(kind=FaultKind.STALL, seconds=30), "total"),
    ],
    ids=["first byte", "gap", "total"],
)
def test_each_phase_has_a_limit_of_its_own(state: Path, limits: dict[str, float], fault: Fault, within: str) -> None:
    with fake_engine(Script(faults=(fault,))) as engine:
        model = {"timeouts": limits, "retries": {"attempts": 1}}
        with served(config_of(state, engine.url, model=model)) as gateway:
            got = gateway.chat(stream=True, max_tokens=16)
            line = gateway.ended()[-1]
    assert line.outcome == "timeout"
    assert line.reason is not None
    assert within in line.reason
    assert (got.status == 504) is (within == "first byte")
    assert b"[DONE]" not in got.body


def test_an_engine_that_takes_no_connection_has_a_limit_of_its_own(state: Path) -> None:
    """Its backlog is full: connecting neither succeeds nor fails."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, ExitStack() as stack:
        full = [stack.enter_context(socket.socket()) for _ in range(4)]
        for sock in full:
            sock.setblocking(False)
            sock.connect_ex(deaf.getsockname())
        model = {"timeouts": {"connect": 0.3}, "retries": {"attempts": 1}}
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with served(config_of(state, url, model=model)) as gateway:
            assert gateway.chat().status == 504
            assert gateway.ended()[-1].outcome == "timeout"


def test_a_long_stream_outlives_the_connect_limit(state: Path) -> None:
    with fake_engine(Script(decode_s=0.1)) as engine:
        with served(config_of(state, engine.url, model={"timeouts": {"connect": 0.3}})) as gateway:
            assert b"[DONE]" in gateway.chat(stream=True, max_tokens=12).body


def test_an_engine_that_is_not_there_is_a_502_and_a_fallback_answers(state: Path) -> None:
    with fake_engine(Script(model="other")) as engine, socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
        unused.close()
        config = config_of(state, f"http://127.0.0.1:{port}")
        config["models"]["other"] = {"replicas": [{"url": engine.url}], "health": {"canary": 0}}
        with served(config) as gateway:
            assert gateway.chat(stream=True).status == 502
        config["models"]["fake"]["fallbacks"] = ["other"]
        with served(config) as gateway:
            assert gateway.chat(stream=True).status == 200
            assert gateway.ended(2)[-1].model == "other"
        config["tenants"]["local"] = {"models": ["fake"]}  # a fallback opens no model that the caller may not use
        with served(config) as gateway:
            assert gateway.chat(stream=True).status == 502


def test_a_drained_gateway_lets_streams_end(state: Path) -> None:
    with fake_engine(Script(decode_s=0.05)) as engine:
        got: list[bytes] = []
        with served(config_of(state, engine.url), drain_s=10.0) as gateway:
            sock = gateway.raw()
            sock.sendall(post(max_tokens=16))
            while b"one" not in b"".join(got):
                got.append(sock.recv(65536))
            reader = threading.Thread(target=lambda: got.append(read_all(sock)))
            reader.start()
        reader.join(10)
        sock.close()
    assert b"[DONE]" in b"".join(got)


def test_the_engine_sees_nothing_of_who_the_client_is(state: Path) -> None:
    with upstream(good) as engine, served(config_of(state, engine.url)) as gateway:
        fields = {"x-forwarded-for": "1.2.3.4", "x-user-id": "root", "cookie": "secret", "x-setpoint-tenant": "other"}
        gateway.chat(stream=True, user="me", api_base="http://evil", cache_salt="guess", fields=fields)
        head, body = engine.head().lower(), json.loads(engine.body())
    for name, value in fields.items():
        assert name not in head
        assert value not in head
    assert "api_base" not in body
    assert body["cache_salt"] not in ("guess", "local")
    assert body["user"] == "me"


def test_members_of_a_request_arrive_byte_for_byte(state: Path) -> None:
    tools = b'[ {"type":"function","function":{"name":"f","parameters":{"x": 1.10, "\\u00e9": [1 ,2]}}} ]'
    body = b'{"model":"fake","stream":true,"messages":[{"role":"user","content":"\\ud83d\\ude00"}],"tools":%b}' % tools
    with upstream(good) as engine, served(config_of(state, engine.url)) as gateway:
        gateway.call("POST", "/v1/chat/completions", body)
        assert tools in engine.body()
        assert b'"\\ud83d\\ude00"' in engine.body()


def test_only_the_client_of_the_last_duplicate_member_is_believed_once(state: Path) -> None:
    """A member given twice reaches the engine once: both read the same request."""
    body = b'{"model":"nope","model":"fake","stream":true,"messages":[]}'
    with upstream(good) as engine, served(config_of(state, engine.url)) as gateway:
        assert gateway.call("POST", "/v1/chat/completions", body).status == 200
        assert engine.body().count(b'"model"') == 1


def test_nothing_is_asked_for_a_client_that_leaves_in_the_moment_its_place_comes(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = Gate.enter
    leave: list[Callable[[], None]] = []

    async def entered(gate: Gate, ticket: Ticket) -> Lease:
        lease = await enter(gate, ticket)
        while leave:
            leave.pop()()
        return lease

    monkeypatch.setattr(Gate, "enter", entered)
    with upstream(good) as engine, served(config_of(state, engine.url)) as gateway:
        leave.append(lambda: next(iter(gateway.plane.connections)).connection_lost(None))
        with gateway.raw() as sock:
            sock.sendall(post())
            line = gateway.ended()[-1]
        assert line.outcome == "cancelled"
        until(gateway.idle)
        assert gateway.chat(stream=True).status == 200
        assert len(engine.requests) == 1


def test_tool_calls_that_a_model_got_wrong_take_no_engine_from_others(state: Path) -> None:
    """Whoever makes a model fail must not make its engine look dead."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    with fake_engine(Script(faults=(Fault(kind=FaultKind.BAD_TOOL, last=5),))) as engine:
        with served(config_of(state, engine.url)) as gateway:
            for number in range(6):
                gateway.chat(tools=tools, stream=bool(number % 2))
            assert {line.outcome for line in gateway.ended(6)} == {"malformed"}
            assert gateway.chat().status == 200


def test_the_whole_trace_context_reaches_the_engine(state: Path) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with upstream(good) as engine, served(config_of(state, engine.url)) as gateway:
        gateway.chat(stream=True, fields={"traceparent": trace, "tracestate": "vendor=1"})
        gateway.chat(stream=True, fields={"traceparent": "none", "tracestate": "vendor=1"})
        whole, without = engine.requests
    assert f"traceparent: {trace}\r\ntracestate: vendor=1\r\n".encode() in whole
    assert b"trace" not in without


def test_a_time_of_any_length_is_an_answer(state: Path) -> None:
    with upstream(good) as engine, served(config_of(state, engine.url)) as gateway:
        assert gateway.chat(fields={"x_setpoint_timeout_ms": "9" * 400}).status == 400
