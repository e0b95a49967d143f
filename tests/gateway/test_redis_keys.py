"""Idempotency keys of gateways that share a real Redis: a request is done once, whichever of them it reaches."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.gateway.conftest import Served, config_of, redis_of, redis_server, served, until, whole
from tests.gateway.test_idempotency import DOCUMENT, document, keyed
from tests.gateway.upstream import Upstream, chunked, upstream

from setpoint.gateway.config import Idempotency, Redis
from setpoint.gateway.flow import Flow
from setpoint.gateway.idempotency import Claim, Kept, named
from setpoint.gateway.redis_keys import RedisKeys
from setpoint.gateway.refusal import Refusal
from setpoint.gateway.sealed import Sealed

RULES = Idempotency(window=60)
SECRET = b"s" * 32


def code(answer: Any) -> tuple[int, str]:
    return answer.status, answer.json()["error"]["code"]


@pytest.fixture
def store(redis_url: str) -> Iterator[redis.Redis]:
    """The Redis itself, empty."""
    with redis.Redis.from_url(redis_url) as made:
        made.flushall()
        yield made


@contextlib.contextmanager
def two(tmp_path: Path, engine: Upstream, part: dict[str, Any], **changes: Any) -> Iterator[tuple[Served, Served]]:
    """Two gateways with states of their own."""
    configs = [config_of(tmp_path / name, engine.url, redis=part, **changes) for name in ("one", "two")]
    with served(configs[0]) as one, served(configs[1]) as other:
        yield one, other


@pytest.fixture
def gateways(
    tmp_path: Path, redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Upstream, Served, Served]]:
    with upstream(document) as engine, two(tmp_path, engine, redis_of(monkeypatch, redis_url)) as (one, other):
        yield engine, one, other


def known(store: redis.Redis) -> list[str]:
    """Names of the keys in Redis."""
    return sorted(name.decode() for name in store.scan_iter("*:idempotency:*") if b":secret" not in name)


def answered(store: redis.Redis) -> bool:
    """Whether Redis has heard of the end of what was asked."""
    names = known(store)
    return bool(names) and not any(store.hexists(name, "owner") for name in names)


# gateways


def test_of_requests_at_once_at_two_gateways_one_is_done(
    tmp_path: Path, redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def late(sock: socket.socket, request: bytes) -> bool:
        go.wait(10)
        return document(sock, request)

    with upstream(late) as engine, two(tmp_path, engine, redis_of(monkeypatch, redis_url)) as gateways:
        with ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(keyed, gateways[i % 2]) for i in range(16)]
            until(lambda: sum(one.done() for one in asked) == 15)
            go.set()
            answers = [one.result() for one in asked]
        assert [a.status for a in answers].count(200) == 1
        assert {code(a) for a in answers if a.status != 200} == {(409, "idempotency_in_flight")}
        assert len(engine.requests) == 1
        for gateway in gateways:
            until(gateway.idle)


def test_what_one_gateway_answered_another_does_not_do_again(
    gateways: tuple[Upstream, Served, Served], store: redis.Redis
) -> None:
    engine, one, other = gateways
    assert keyed(one).body == DOCUMENT
    again = keyed(one)
    assert (again.status, again.body, again.fields["idempotent-replayed"]) == (200, DOCUMENT, "true")
    until(lambda: answered(store))
    assert code(keyed(other)) == (409, "idempotency_answered")
    assert code(keyed(other, temperature=0.5)) == (422, "idempotency_mismatch")
    assert code(keyed(one, temperature=0.5)) == (422, "idempotency_mismatch")
    assert len(engine.requests) == 1
    assert keyed(other, "k2").status == 200
    assert len(engine.requests) == 2
    usage = [line.prompt_tokens + line.completion_tokens for g in (one, other) for line in g.ended(3)]
    assert sum(usage) == 14


def test_every_gateway_says_an_answer_again_where_answers_stand_in_redis(
    tmp_path: Path, redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = redis_of(monkeypatch, redis_url, idempotency_answers=True)
    with upstream(document) as engine, two(tmp_path, engine, part) as (one, other):
        assert keyed(one).body == DOCUMENT
        until(lambda: answered(store))
        for gateway in (one, other):
            again = keyed(gateway)
            assert (again.status, again.body, again.fields["idempotent-replayed"]) == (200, DOCUMENT, "true")
            assert again.fields["content-type"] == "application/json"
        assert code(keyed(other, temperature=0.5)) == (422, "idempotency_mismatch")
        assert len(engine.requests) == 1
        (name,) = known(store)
        entry: Any = store.hgetall(name)
        assert len(entry[b"answer"]) > len(DOCUMENT)
        assert not any(word in entry[b"answer"] for word in (b"choices", b"assistant", b"json"))


@pytest.mark.parametrize("rules", [{"max_answer": 10}, {"window": 0.5}])
def test_answers_in_redis_have_the_bounds_of_others(
    rules: dict[str, Any], tmp_path: Path, redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = redis_of(monkeypatch, redis_url, idempotency_answers=True)
    with upstream(document) as engine, two(tmp_path, engine, part, idempotency=rules) as (one, other):
        assert keyed(one).status == 200
        if "window" in rules:
            until(lambda: keyed(other).status == 200 and len(engine.requests) == 2, 5)
        else:
            until(lambda: answered(store))
            assert code(keyed(other)) == (409, "idempotency_answered")


def test_a_key_is_free_at_every_gateway_after_its_window(
    tmp_path: Path, redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = redis_of(monkeypatch, redis_url)
    with upstream(document) as engine, two(tmp_path, engine, part, idempotency={"window": 0.5}) as (one, other):
        assert keyed(one).status == 200
        until(lambda: keyed(other).status == 200, 5)
        assert len(engine.requests) == 2


def test_a_failed_request_may_be_tried_again_at_another_gateway(
    tmp_path: Path, redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(sock: socket.socket, request: bytes) -> bool:
        if len(engine.requests) == 1:
            sock.sendall(chunked(b"{}", status=500, kind="application/json"))
            return True
        return document(sock, request)

    with upstream(failing) as engine, two(tmp_path, engine, redis_of(monkeypatch, redis_url)) as (one, other):
        assert keyed(one).status == 502
        until(lambda: not known(store))
        assert keyed(other).status == 200


def test_a_client_that_left_frees_its_key_at_every_gateway(
    tmp_path: Path, redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(sock: socket.socket, request: bytes) -> bool:
        return sock.recv(1) != b"" if len(engine.requests) == 1 else document(sock, request)

    body = json.dumps({"model": "fake", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 4})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nidempotency-key: k1\r\ncontent-length: {len(body)}"
    with upstream(silent) as engine, two(tmp_path, engine, redis_of(monkeypatch, redis_url)) as (one, other):
        with one.raw() as sock:
            sock.sendall(f"{head}\r\n\r\n{body}".encode())
            until(lambda: engine.requests)
            assert code(keyed(other)) == (409, "idempotency_in_flight")
        until(lambda: not known(store))
        assert keyed(other).status == 200


def test_a_killed_gateway_frees_its_keys_when_their_lease_ends(
    tmp_path: Path, redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once_silent(sock: socket.socket, request: bytes) -> bool:
        return sock.recv(1) != b"" if len(engine.requests) == 1 else document(sock, request)

    part = redis_of(monkeypatch, redis_url, timeout=0.5, idempotency_lease=1.5)
    with upstream(once_silent) as engine, served(config_of(tmp_path / "two", engine.url, redis=part)) as other:
        config = config_of(tmp_path / "one", engine.url, redis=part, workers=1)
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            (worker,) = gateway.status()["pids"]
            lost: list[OSError] = []

            def ask() -> None:
                try:
                    keyed(gateway)
                except OSError as error:
                    lost.append(error)

            asking = threading.Thread(target=ask)
            asking.start()
            until(lambda: engine.requests)
            os.kill(gateway.process.pid, signal.SIGSTOP)  # it starts no other worker, and tells none to end
            os.kill(worker, signal.SIGKILL)
            gateway.process.kill()
            asking.join(10)
            assert lost
            (name,) = known(store)
            left: Any = store.pttl(name)
            assert 0 < left <= 1500
            assert code(keyed(other)) == (409, "idempotency_in_flight")
            until(lambda: keyed(other).status == 200)
    assert len(engine.requests) == 2


def test_without_redis_a_request_with_a_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(tmp_path) as server, upstream(document) as engine:
        part = redis_of(monkeypatch, server.url, timeout=0.3)
        with served(config_of(tmp_path / "one", engine.url, redis=part)) as gateway:
            assert keyed(gateway).status == 200
            with redis.Redis.from_url(server.url) as store:
                until(lambda: answered(store) and not store.exists("{setpoint}:tenant:local:open"))
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                silent = keyed(gateway, "k2")
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            assert code(silent) == (503, "idempotency")
            assert silent.fields["retry-after"] == "1"
            server.process.kill()
            server.process.wait()
            assert code(keyed(gateway)) == (503, "idempotency")
            assert len(engine.requests) == 1


def test_redis_gets_no_text(gateways: tuple[Upstream, Served, Served], store: redis.Redis) -> None:
    _, one, _ = gateways
    assert keyed(one, "my-own-key", text="words of the prompt").status == 200
    until(lambda: answered(store))
    (name,) = known(store)
    entry: Any = store.hgetall(name)
    assert set(entry) == {b"request"}
    mark: Any = store.get("{setpoint}:idempotency:secret")
    held = name.encode() + b"".join(entry.values()) + mark
    for text in (b"my-own-key", b"local", b"prompt", b"Hi", b"a secret that"):
        assert text not in held


def test_gateways_with_different_secrets_do_not_pretend_to_share_keys(
    tmp_path: Path,
    redis_url: str,
    store: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    part = redis_of(monkeypatch, redis_url)
    monkeypatch.setenv("OTHER_SECRET", "another secret, as long as it has to be")
    with upstream(document) as engine:
        with served(config_of(tmp_path / "one", engine.url, redis=part)) as one:
            assert keyed(one).status == 200
            with served(config_of(tmp_path / "two", engine.url, redis=part | {"secret_env": "OTHER_SECRET"})) as other:
                assert {code(keyed(other)) for _ in range(3)} == {(503, "idempotency")}
                assert [record.levelname for record in caplog.records] == ["ERROR"]
                assert "OTHER_SECRET" in caplog.text
                assert other.chat().status == 200
                assert keyed(one, "k2").status == 200


def test_a_tenant_has_one_cache_salt_at_all_gateways(gateways: tuple[Upstream, Served, Served]) -> None:
    engine, one, other = gateways
    assert [one.chat().status, other.chat().status] == [200, 200]
    first, second = (json.loads(engine.body(number))["cache_salt"] for number in (0, 1))
    assert first == second


# the store


def test_a_sealed_answer_opens_for_its_key_and_its_request_alone() -> None:
    sealed, name = Sealed(SECRET), named(SECRET, "acme", "k", b"r")
    data = sealed.seal(name, "text/plain", b"a\0b")
    assert sealed.open(name, data) == ("text/plain", b"a\0b")
    for other in (named(SECRET, "acme", "k2", b"r"), named(SECRET, "acme", "k", b"r2")):
        assert sealed.open(other, data) is None
    for damaged in (data[:-1], data[:5], data[:-1] + bytes([data[-1] ^ 1])):
        assert sealed.open(name, damaged) is None
    assert Sealed(b"t" * 32).open(name, data) is None


def keys_of(monkeypatch: pytest.MonkeyPatch, url: str, **changes: Any) -> RedisKeys:
    return RedisKeys(Redis(**redis_of(monkeypatch, url, timeout=5.0, **changes)), SECRET)


async def claimed(keys: RedisKeys, key: str = "k") -> Claim:
    claim = await keys.claim("acme", key, b"r")
    assert isinstance(claim, Claim)
    return claim


def test_a_client_that_leaves_while_redis_is_asked_leaves_no_key_behind(
    redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far the question has come: not sent, on its way, answered."""

    async def go() -> None:
        keys = keys_of(monkeypatch, redis_url)
        for turns in range(12):
            ended: list[bool] = []

            async def work() -> None:
                (await claimed(keys)).release()

            flow = Flow(work(), ended.append)
            flow.start()
            for _ in range(turns):
                await asyncio.sleep(0.0002)
            flow.cancel()
            while not ended:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.001)
            await keys.calls.settled()
            assert not known(store), turns
            assert not keys._held
        await keys.close()

    asyncio.run(go())


def test_a_key_that_was_taken_by_a_call_without_an_answer_is_free(
    redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        keys = keys_of(monkeypatch, redis_url)
        asked = keys._claim

        async def unanswered(**arguments: Any) -> None:
            await asked(**arguments)
            assert known(store)
            raise TimeoutError

        keys._claim = unanswered
        with pytest.raises(Refusal) as refused:
            await keys.claim("acme", "k", b"r")
        assert refused.value.status == 503
        await keys.calls.settled()
        assert not known(store)
        await keys.close()

    asyncio.run(go())


def test_a_request_longer_than_the_lease_keeps_its_key(
    redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        one, other = (keys_of(monkeypatch, redis_url, idempotency_lease=1.0) for _ in range(2))
        claim = await claimed(one)
        (name,) = known(store)
        renewals, before = 0, 1000
        while renewals < 4:  # a third of the lease each
            left: Any = store.pttl(name)
            renewals, before = renewals + (left > before), left
            with pytest.raises(Refusal, match="under way"):
                await other.claim("acme", "k", b"r")
            await asyncio.sleep(0.02)
        claim.release()
        await one.calls.settled()
        await claimed(other)
        for keys in (one, other):
            await keys.close()

    asyncio.run(go())


def test_who_repeats_at_once_at_the_same_worker_gets_the_answer(
    redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Redis has to be told of its end twice."""

    async def go() -> None:
        keys = keys_of(monkeypatch, redis_url)
        told, times = keys._end, []

        async def once_unreachable(**arguments: Any) -> None:
            times.append(arguments)
            if len(times) == 1:
                raise ConnectionResetError
            await told(**arguments)

        keys._end = once_unreachable
        (await claimed(keys)).answered(RULES, ("text/plain", b"mine"))
        found = await keys.claim("acme", "k", b"r")
        assert isinstance(found, Kept)
        assert found.body == b"mine"
        assert len(times) == 2
        await keys.close()

    asyncio.run(go())


def test_who_lost_a_key_takes_it_from_nobody(
    redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        one, other = (keys_of(monkeypatch, redis_url, idempotency_lease=0.3) for _ in range(2))
        lost = await claimed(one)
        store.delete(*known(store))  # as after a time without Redis that was longer than the lease
        await claimed(other)
        async with asyncio.timeout(10):
            while not caplog.records:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
        for window_s in (60, 0):  # answered, released
            one.answered(lost, Idempotency(window=window_s), None)
            await one.calls.settled()
            with pytest.raises(Refusal, match="under way"):
                await one.claim("acme", "k", b"r")
        for keys in (one, other):
            await keys.close()

    asyncio.run(go())
    assert "no longer" in caplog.text


def test_a_key_whose_entry_was_lost_is_known_again_once_it_is_answered(
    redis_url: str, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        one, other = (keys_of(monkeypatch, redis_url) for _ in range(2))
        claim = await claimed(one)
        store.delete(*known(store))
        claim.answered(RULES, None)
        await one.calls.settled()
        with pytest.raises(Refusal, match="was answered"):
            await other.claim("acme", "k", b"r")
        (name,) = known(store)
        left: Any = store.pttl(name)
        assert 30_000 < left <= 60_000
        for keys in (one, other):
            await keys.close()

    asyncio.run(go())
