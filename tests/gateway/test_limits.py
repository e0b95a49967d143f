"""Allowances: exact under concurrency, in one process and in several."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.conftest import config_of, served, until
from tests.gateway.upstream import GOOD, Upstream, chunked, upstream

from setpoint.gateway import shared
from setpoint.gateway.config import Limits
from setpoint.gateway.limits import (
    DAY_USED,
    KEPT_ROWS,
    RESERVED,
    STREAMS,
    Holder,
    LimitReached,
    LimitStore,
    SharedLimits,
    per_minute,
)
from setpoint.gateway.shared import SharedTable
from setpoint.gateway.supervisor import Supervisor
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script


@pytest.fixture
def table(tmp_path: Path) -> Iterator[SharedTable]:
    made = SharedTable(tmp_path / "table", 2, 0)
    yield made
    made.close()


def holder(name: str = "tenant:a", **limits: int) -> Holder:
    return Holder(name, Limits(**limits))


async def admitted(store: LimitStore, who: Holder, tokens: int) -> bool:
    try:
        await store.reserve([who], tokens)
    except LimitReached:
        return False
    return True


def test_the_last_token_is_given_out_once(table: SharedTable) -> None:
    async def go() -> list[bool]:
        who = holder(tokens_per_minute=1000)
        return await asyncio.gather(*(admitted(SharedLimits(table), who, 100) for _ in range(50)))

    assert asyncio.run(go()).count(True) == 10


def test_what_was_not_used_is_free_again_at_once(table: SharedTable) -> None:
    async def go() -> None:
        store, who = SharedLimits(table), holder(tokens_per_minute=1000)
        first = await store.reserve([who], 1000)
        assert not await admitted(store, who, 1)
        store.settle(first, 400)
        assert await admitted(store, who, 600)
        assert not await admitted(store, who, 100)

    asyncio.run(go())


def test_one_holders_refusal_takes_nothing_from_the_others(table: SharedTable) -> None:
    async def go() -> None:
        store = SharedLimits(table)
        tenant, key = holder("tenant:a", tokens_per_minute=1000), holder("key:b", streams=1)
        await store.reserve([tenant, key], 10)
        with pytest.raises(LimitReached):
            await store.reserve([tenant, key], 10)
        row = table.row("tenant:a")
        assert (row.held(STREAMS), row.held(RESERVED)) == (1, 10)

    asyncio.run(go())


def test_a_request_larger_than_the_allowance_never_fits(table: SharedTable) -> None:
    with pytest.raises(LimitReached) as raised:
        asyncio.run(SharedLimits(table).reserve([holder(tokens_per_minute=10)], 11))
    assert raised.value.retry_after_s is None


def test_retry_after_is_the_time_until_it_fits(table: SharedTable) -> None:
    async def go() -> float:
        store, who = SharedLimits(table), holder(tokens_per_minute=600)
        store.settle(await store.reserve([who], 600), 600)
        with pytest.raises(LimitReached) as raised:
            await store.reserve([who], 100)
        assert raised.value.retry_after_s is not None
        return raised.value.retry_after_s

    assert 9.0 < asyncio.run(go()) <= 10.0  # 100 tokens at 10 a second


def test_a_days_allowance_counts_what_is_reserved(table: SharedTable) -> None:
    async def go() -> None:
        store, who = SharedLimits(table), holder(tokens_per_day=100)
        first = await store.reserve([who], 60)
        assert not await admitted(store, who, 60)
        store.settle(first, 10)
        assert await admitted(store, who, 60)

    asyncio.run(go())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 400), st.floats(0, 1)), max_size=40))
def test_no_order_of_reserving_and_settling_leaves_a_remainder(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, float]]
) -> None:
    table = SharedTable(tmp_path_factory.mktemp("t") / "table", 1, 0)

    async def go() -> int:
        store, who, open_, used = SharedLimits(table), holder(tokens_per_day=1000), [], 0
        for tokens, share in steps:
            try:
                open_.append((await store.reserve([who], tokens), int(tokens * share)))
            except LimitReached:
                if open_:
                    reservation, spent = open_.pop(0)
                    store.settle(reservation, spent)
                    used += spent
            row = table.row("tenant:a")
            assert row[DAY_USED] + row.held(RESERVED) <= 1000
        for reservation, spent in open_:
            store.settle(reservation, spent)
            used += spent
        return used

    used, row = asyncio.run(go()), table.row("tenant:a")
    assert (row.held(STREAMS), row.held(RESERVED)) == (0, 0)
    assert row[DAY_USED] == used or not steps
    table.close()


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 10**9))
def test_after_the_told_time_it_fits(level: int, limit: int, asked: int) -> None:
    wait_s = per_minute(level, limit, asked)
    if wait_s is None:
        assert asked > limit * 1000
    else:
        assert level - wait_s * limit * 1000 / 60 + asked <= limit * 1000 + 1


CHILD = """
import asyncio, sys
from pathlib import Path
from setpoint.gateway.config import Limits
from setpoint.gateway.limits import Holder, LimitReached, SharedLimits
from setpoint.gateway.shared import SharedTable

table = SharedTable(Path(sys.argv[1]), 4, int(sys.argv[2]))
store = SharedLimits(table)
who = Holder("tenant:a", Limits(tokens_per_day=100_000))
one = Holder("tenant:b", Limits(tokens_per_day=37))
row = table.row("tenant:b")

async def go():
    won = 0
    for i in range(5000):
        try:
            reservation = await store.reserve([who], 37)
        except LimitReached:
            continue
        won += 1
        if i % 3 == 0:
            store.settle(reservation, 0)
            won -= 1
    over = 0
    for _ in range(20_000):  # room for one: whoever has it must be alone
        try:
            reservation = await store.reserve([one], 37)
        except LimitReached:
            continue
        over += row.held(1) != 37
        store.settle(reservation, 0)
    print(won, over)

print("ready", flush=True)
sys.stdin.read(1)
asyncio.run(go())
"""


def test_processes_share_one_allowance_exactly(tmp_path: Path) -> None:
    """Four processes reserve as fast as they can; a killed one's share comes back."""
    path = tmp_path / "table"
    table = SharedTable(path, 4, -1)
    source = str(Path(__file__).parents[2] / "src")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), str(i)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": source},
        )
        for i in range(4)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("x")
        child.stdin.flush()
    told = [child.communicate(timeout=60)[0].split() for child in children]
    won = sum(int(one) for one, _ in told)
    assert [over for _, over in told] == ["0"] * 4
    row = table.row("tenant:a")
    assert row.held(RESERVED) == won * 37
    assert row.held(STREAMS) == won
    assert 100_000 - 37 < won * 37 <= 100_000
    for worker in range(4):
        table.clear_worker(worker)
    assert (row.held(RESERVED), row.held(STREAMS)) == (0, 0)
    table.close()


# through the gateway


def test_a_tenants_limits_are_told_with_a_time(state: Path) -> None:
    with fake_engine(Script()) as engine:
        config = config_of(state, engine.url, tenants={"local": {"limits": {"requests_per_minute": 2}}})
        with served(config) as gateway:
            assert [gateway.chat().status for _ in range(2)] == [200, 200]
            third = gateway.chat()
    assert third.status == 429
    assert 1 <= int(third.fields["retry-after"]) <= 30
    assert third.json()["error"]["code"] == "requests_per_minute"


def test_streams_at_once_are_bounded(state: Path) -> None:
    with fake_engine(Script(decode_s=0.05)) as engine:
        config = config_of(state, engine.url, tenants={"local": {"limits": {"streams": 3}}})
        with served(config) as gateway, ThreadPoolExecutor(10) as pool:
            statuses = list(pool.map(lambda _: gateway.chat(stream=True, max_tokens=16).status, range(10)))
            until(gateway.idle)
    assert statuses.count(200) == 3
    assert statuses.count(429) == 7


def test_who_has_too_many_streams_is_told_when_one_of_them_ends(state: Path) -> None:
    """The mean time that an answer of the model takes, over those under way; at most what clients wait for."""
    freed = threading.Event()

    def held(sock: socket.socket, request: bytes) -> bool:
        freed.wait(20)
        sock.sendall(chunked(GOOD))
        return True

    with upstream(held) as engine:
        config = config_of(state, engine.url, tenants={"local": {"limits": {"streams": 2}}})
        with served(config) as gateway, ThreadPoolExecutor(2) as pool:
            first = [pool.submit(gateway.chat, stream=True) for _ in range(2)]
            until(lambda: len(engine.requests) == 2)
            gate = gateway.plane.snapshot.routes["fake"].gate
            told = []
            for service_s in (30.0, 4000.0, 0.1):
                gate._service_s = service_s
                refused = gateway.chat(stream=True)
                assert (refused.status, refused.json()["error"]["code"]) == (429, "streams")
                told.append(refused.fields["retry-after"])
            freed.set()
            assert [one.result().status for one in first] == [200, 200]
    assert told == ["15", "60", "1"]


COUNTED = {"model": "fake", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}


def test_requests_that_need_no_engine_count_against_requests_alone(state: Path, engine: Upstream) -> None:
    limits = {"requests_per_minute": 4, "tokens_per_minute": 50, "streams": 1}
    with served(config_of(state, engine.url, tenants={"local": {"limits": limits}})) as gateway:
        row = gateway.table.row("tenant:local")
        row.hold(STREAMS, 1)  # a stream is under way: these are none
        row.hold(RESERVED, 50)
        statuses = [gateway.call("GET", "/v1/models").status for _ in range(2)]
        statuses += [gateway.call("POST", "/v1/messages/count_tokens", COUNTED).status for _ in range(2)]
        assert statuses == [200] * 4
        over = [gateway.call("GET", "/v1/models"), gateway.call("POST", "/v1/messages/count_tokens", COUNTED)]
        assert [one.status for one in over] == [429, 429]
        assert 1 <= int(over[0].fields["retry-after"]) <= 15
        assert over[1].json()["error"]["type"] == "rate_limit_error"
        assert (row.held(STREAMS), row.held(RESERVED), row[DAY_USED]) == (1, 50, 0)
        row.hold(STREAMS, -1)
        row.hold(RESERVED, -50)
        assert gateway.chat().json()["error"]["code"] == "requests_per_minute"
        until(gateway.idle)


def test_more_tenants_than_there_is_room_for_are_told(
    state: Path, tmp_path: Path, engine: Upstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a code of their own, and one line in the log; those known before, and declared ones, are served."""
    monkeypatch.setattr(shared, "ROWS", KEPT_ROWS + 40)
    config = config_of(state, engine.url, tenants={"z-declared": {}}, auth={"undeclared_tenants": True})
    with served(config) as gateway:
        keys = [gateway.keys().create(f"t{number}")[1] for number in range(50)]
        answers = [gateway.chat(stream=True, fields={"x-api-key": key}) for key in keys]
        statuses = [answer.status for answer in answers]
        served_ = statuses.count(200)
        assert statuses == [200] * served_ + [503] * (50 - served_)
        assert 30 < served_ < 40
        assert answers[-1].json()["error"]["code"] == "too_many_tenants"
        assert int(answers[-1].fields["retry-after"]) >= 1
        declared = gateway.keys().create("z-declared")[1]
        for key in (keys[0], declared):
            assert gateway.chat(stream=True, fields={"x-api-key": key}).status == 200
        gateway.table.row("replica:of:a-later-configuration")
        until(gateway.idle)
    told = [record.getMessage() for record in caplog.records if "503" in record.getMessage()]
    assert len(told) == 1
    monkeypatch.setattr(shared, "ROWS", KEPT_ROWS + 10)  # a start with more that used tokens today than there is room
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(config))
    supervisor = Supervisor(path, lambda _: None)
    assert supervisor._table.row("tenant:z-declared")[DAY_USED] > 0
    supervisor.close()


def test_reservations_of_cancelled_streams_come_back(state: Path) -> None:
    with fake_engine(Script(decode_s=0.02, output_tokens=1000)) as engine:
        config = config_of(state, engine.url, tenants={"local": {"limits": {"tokens_per_day": 3000}}})
        with served(config) as gateway:
            for _ in range(10):
                with gateway.raw() as sock:
                    body = b'{"model":"fake","stream":true,"max_tokens":1000,"messages":[]}'
                    sock.sendall(
                        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
                    )
                    sock.sendall(body)
                    until(lambda: b"one" in sock.recv(65536))
                until(gateway.idle)
            row = gateway.table.row("tenant:local")
            charged = sum(line.prompt_tokens + line.completion_tokens for line in gateway.ended(10))
            assert row[DAY_USED] == charged
            assert charged < 1000


def test_outputs_and_prompts_have_bounds(state: Path) -> None:
    with fake_engine(Script()) as engine:
        limits = {"max_output": 8, "max_context": 1000}
        with served(config_of(state, engine.url, tenants={"local": {"limits": limits}})) as gateway:
            assert gateway.chat(max_tokens=9).status == 400
            assert gateway.chat("word " * 5000).status == 400
            body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
            free = gateway.call("POST", "/v1/chat/completions", body).json()
    assert free["usage"]["completion_tokens"] == 8  # who names no limit gets the bound
