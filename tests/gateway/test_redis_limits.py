"""Allowances in Redis: exact, charged once, and held across gateways."""

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import config_of, redis_of, served
from tests.gateway.test_limits import admitted, holder

from setpoint.gateway import redis_limits
from setpoint.gateway.config import Redis
from setpoint.gateway.flow import Flow
from setpoint.gateway.limits import (
    LimitReached,
    Reservation,
)
from setpoint.gateway.redis_limits import RedisLimits
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script


def redis_store(monkeypatch: pytest.MonkeyPatch, url: str, prefix: str, timeout: float = 5.0) -> RedisLimits:
    return RedisLimits(Redis(**redis_of(monkeypatch, url, prefix=prefix, timeout=timeout)))


def test_redis_gives_the_last_token_out_once(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> list[bool]:
        stores = [redis_store(monkeypatch, redis_url, "once") for _ in range(3)]  # three gateways
        who = holder(tokens_per_minute=1000)
        won = await asyncio.gather(*(admitted(stores[i % 3], who, 100) for i in range(60)))
        for store in stores:
            await store.close()
        return won

    assert asyncio.run(go()).count(True) == 10


def test_redis_refunds_and_charges(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        store = redis_store(monkeypatch, redis_url, "refund")
        who = holder(tokens_per_day=100, streams=1)
        first = await store.reserve([who], 100)
        with pytest.raises(LimitReached) as raised:
            await store.reserve([who], 1)
        assert (raised.value.limit, raised.value.held) == ("streams", 1)
        store.settle(first, 30)
        await store.calls.settled()
        assert not await admitted(store, who, 71)
        assert await admitted(store, who, 70)
        await store.close()

    asyncio.run(go())


def test_an_exchange_that_outlasts_its_reservation_in_redis_is_charged_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        store = redis_store(monkeypatch, redis_url, "late")
        who = holder(tokens_per_day=100, tokens_per_minute=1000)
        monkeypatch.setattr(redis_limits, "LEASE_S", 1e-6)
        long, left = await store.reserve([who], 60), await store.reserve([who], 40)
        monkeypatch.setattr(redis_limits, "LEASE_S", 7200)
        other = await store.reserve([who], 90)  # nothing is set aside for them any longer
        store.settle(other, 0)
        store.settle(left, 0)
        for _ in range(2):  # as after an answer of Redis that was lost
            store.settle(long, 50)
            await store.calls.settled()
        store.settle(Reservation((who,), 30, "unknown"), 30)
        await store.calls.settled()
        assert not await admitted(store, who, 51)
        assert await admitted(store, who, 50)
        used = await store.calls.client.hgetall("{late}:tenant:a")
        assert int(used[b"reserved"]) == 50
        assert 49 <= float(used[b"tokens"]) <= 50
        await store.close()

    asyncio.run(go())


def test_redis_counts_requests_that_need_no_engine(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        store = redis_store(monkeypatch, redis_url, "count")
        who = holder(requests_per_minute=2, tokens_per_minute=10, streams=1)
        under_way = await store.reserve([who], 10)
        await store.count([who, holder("tenant:unlimited")])
        with pytest.raises(LimitReached) as raised:
            await store.count([who])
        assert raised.value.limit == "requests_per_minute"
        store.settle(under_way, 0)
        await store.calls.settled()
        assert await store.calls.client.zcard("{count}:tenant:a:open") == 0
        assert int(await store.calls.client.hget("{count}:tenant:a", "reserved")) == 0
        assert not await store.calls.client.exists("{count}:tenant:unlimited")
        await store.close()

    asyncio.run(go())


def test_what_redis_gave_to_a_request_whose_client_had_left_comes_back(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far the question has come: not sent, on its way, answered."""

    async def go() -> None:
        store = redis_store(monkeypatch, redis_url, "left")
        who = holder(tokens_per_day=100, streams=1)
        for turns in range(12):
            ended: list[bool] = []

            async def work() -> None:
                store.settle(await store.reserve([who], 100), 0)

            flow = Flow(work(), ended.append)
            flow.start()
            for _ in range(turns):
                await asyncio.sleep(0.0002)
            flow.cancel()
            while not ended:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.001)
            await store.calls.settled()
            assert await admitted(store, holder(tokens_per_day=100), 100), turns
            await store.calls.client.flushdb()
        await store.close()

    asyncio.run(go())


def test_without_redis_requests_are_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    redis = redis_of(monkeypatch, f"redis://127.0.0.1:{port}/0", timeout=0.3)
    with fake_engine(Script()) as engine:
        with served(config_of(state, engine.url, redis=redis)) as gateway:
            assert gateway.chat().status == 503


def test_limits_hold_across_gateways(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: dict[str, Any] = {"redis": redis_of(monkeypatch, redis_url, prefix="two")}
    shared["tenants"] = {"local": {"limits": {"requests_per_minute": 7}}}
    with fake_engine(Script()) as engine:
        configs = [config_of(tmp_path / name, engine.url, **shared) for name in "ab"]
        with served(configs[0]) as one, served(configs[1]) as two:
            statuses: list[int] = []

            def client(gateway: object) -> None:
                for _ in range(10):
                    statuses.append(gateway.chat().status)  # type: ignore[attr-defined]
                    time.sleep(0.001)

            threads = [threading.Thread(target=client, args=(g,)) for g in (one, two)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
    assert statuses.count(200) in (7, 8)  # the eighth where the run took long enough to earn one
    assert statuses.count(429) == 20 - statuses.count(200)
