"""An idempotency key is done once: while its request is under way, and after it was answered."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import Answer, Client, config_of, served, until, whole
from tests.gateway.upstream import chunked, good, upstream

from setpoint.gateway.config import Idempotency
from setpoint.gateway.idempotency import SETS, WAYS, Claim, IdempotencyKeys, Kept
from setpoint.gateway.refusal import Refusal
from setpoint.gateway.shared import SharedTable
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script

DOCUMENT = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
).encode()


def document(sock: socket.socket, request: bytes) -> bool:
    sock.sendall(chunked(DOCUMENT, kind="application/json"))
    return True


def keyed(gateway: Client, key: str = "k1", **members: Any) -> Answer:
    return gateway.chat(fields={"idempotency_key": key}, **members)


def test_a_repeated_request_gets_the_same_answer_and_is_neither_done_nor_billed_again(state: Path) -> None:
    with upstream(document) as engine, served(config_of(state, engine.url)) as gateway:
        first, again = keyed(gateway), keyed(gateway)
        assert (first.status, again.status) == (200, 200)
        assert first.body == again.body == DOCUMENT
        assert "idempotent-replayed" not in first.fields
        assert again.fields["idempotent-replayed"] == "true"
        assert len(engine.requests) == 1
        assert "idempotency-key: k1" in engine.head()
        lines = gateway.ended(2)
        assert [line.prompt_tokens + line.completion_tokens for line in lines] == [7, 0]
        assert [(line.status, line.sent_status) for line in lines] == [(200, 200), (304, 200)]
        assert keyed(gateway, "k2").status == 200
        assert len(engine.requests) == 2
        until(gateway.idle)


def test_a_key_belongs_to_one_request_and_one_tenant(state: Path) -> None:
    with upstream(document) as engine:
        with served(config_of(state, engine.url, auth={}, tenants={"acme": {}, "other": {}})) as gateway:
            mine, theirs = (Client(gateway.port, gateway.keys().create(name)[1]) for name in ("acme", "other"))
            assert keyed(mine).status == 200
            other = keyed(mine, temperature=0.5)
            assert (other.status, other.json()["error"]["code"]) == (422, "idempotency_mismatch")
            assert keyed(theirs, temperature=0.5).status == 200
            assert len(engine.requests) == 2
            assert keyed(mine, "k" * 300).status == 400


def test_who_may_not_use_the_model_is_not_told_its_answer(state: Path) -> None:
    with upstream(document) as engine:
        config = config_of(state, engine.url, auth={}, tenants={"acme": {}})
        config["models"]["other"] = config["models"]["fake"]
        with served(config) as gateway:
            may, may_not = (
                Client(gateway.port, gateway.keys().create("acme", models=(name,))[1]) for name in ("fake", "other")
            )
            assert [keyed(client).status for client in (may, may_not, may)] == [200, 404, 200]
            assert len(engine.requests) == 1


def test_a_key_under_way_is_a_conflict_and_a_client_that_left_frees_it(state: Path) -> None:
    go = threading.Event()

    def late(sock: socket.socket, request: bytes) -> bool:
        go.wait(10)
        return document(sock, request)

    with upstream(late) as engine, served(config_of(state, engine.url)) as gateway:
        body = json.dumps({"model": "fake", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 4})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nidempotency-key: k1\r\ncontent-length: {len(body)}"
        with gateway.raw() as sock:
            sock.sendall(f"{head}\r\n\r\n{body}".encode())
            until(lambda: engine.requests)
            busy = keyed(gateway)
            assert (busy.status, busy.json()["error"]["code"]) == (409, "idempotency_in_flight")
            assert busy.fields["retry-after"] == "1"
        until(gateway.idle)
        go.set()
        assert keyed(gateway).status == 200
        assert len(engine.requests) == 2


def test_an_answered_stream_is_not_done_again_and_not_kept(state: Path) -> None:
    with upstream(good) as engine, served(config_of(state, engine.url)) as gateway:
        assert keyed(gateway, stream=True).status == 200
        again = keyed(gateway, stream=True)
        assert (again.status, again.json()["error"]["code"]) == (409, "idempotency_answered")
        assert len(engine.requests) == 1


def test_a_failed_request_may_be_tried_again_under_its_key(state: Path) -> None:
    def failing(sock: socket.socket, request: bytes) -> bool:
        if len(engine.requests) == 1:
            sock.sendall(chunked(b"{}", status=500, kind="application/json"))
            return True
        return document(sock, request)

    with upstream(failing) as engine, served(config_of(state, engine.url)) as gateway:
        assert [keyed(gateway).status for _ in range(2)] == [502, 200]


def test_a_key_is_free_again_after_its_window(state: Path) -> None:
    with upstream(document) as engine:
        with served(config_of(state, engine.url, idempotency={"window": 0.5})) as gateway:
            assert keyed(gateway).status == 200
            until(lambda: "idempotent-replayed" not in keyed(gateway).fields, 5)
            assert len(engine.requests) == 2


def test_all_workers_know_a_key(state: Path, tmp_path: Path) -> None:
    """Sixteen requests at once over two processes: one is done."""
    with fake_engine(Script(decode_s=0.05)) as engine:
        with whole(tmp_path / "gateway.yaml", config_of(state, engine.url, workers=2)) as gateway:
            with ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(lambda _: keyed(gateway, max_tokens=8), range(16)))
            done = [a for a in answers if a.status == 200 and "idempotent-replayed" not in a.fields]
            assert len(done) == 1
            assert {a.status for a in answers} <= {200, 409}
            used = until(gateway.usage)
            assert sum(row["completion_tokens"] for row in used) == 8


# the table


def keys_of(folder: Path, worker: int) -> IdempotencyKeys:
    return IdempotencyKeys(folder / "keys", SharedTable(folder / "table", 2, worker), b"s" * 32)


async def claimed(keys: IdempotencyKeys, tenant: str, key: str) -> Claim:
    claim = await keys.claim(tenant, key, b"r")
    assert isinstance(claim, Claim)
    return claim


def test_a_worker_that_died_leaves_no_key_behind(tmp_path: Path) -> None:
    async def go() -> None:
        one, two = keys_of(tmp_path, 0), keys_of(tmp_path, 1)
        await claimed(one, "acme", "k")
        with pytest.raises(Refusal, match="under way"):
            await two.claim("acme", "k", b"r")
        again = keys_of(tmp_path, 0)  # what the supervisor starts in its place
        await claimed(two, "acme", "k")
        for made in (one, two, again):
            await made.close()

    asyncio.run(go())


def test_memory_is_bounded_and_a_tenant_with_many_keys_loses_its_own(tmp_path: Path) -> None:
    async def go() -> None:
        keys, rules = keys_of(tmp_path, 0), Idempotency(memory=10_000, max_answer=1_000)
        size = (tmp_path / "keys").stat().st_size
        (await claimed(keys, "quiet", "k")).answered(rules, ("text/plain", b"mine"))
        for number in range(SETS * WAYS // 4):
            claim = await claimed(keys, "loud", f"{number}")
            claim.answered(rules, ("text/plain", b"x" * 500) if number % 100 == 0 else None)
        assert 9_000 < keys.answers.size <= 10_000
        assert (tmp_path / "keys").stat().st_size == size
        with pytest.raises(Refusal, match="was answered"):  # its document made room, its key did not
            await keys.claim("quiet", "k", b"r")
        await keys.close()

    asyncio.run(go())


def test_a_large_document_is_not_kept(tmp_path: Path) -> None:
    async def go() -> None:
        keys, rules = keys_of(tmp_path, 0), Idempotency(max_answer=10, window=60)
        for text, kept in ((b"x" * 11, False), (b"x" * 10, True)):
            claim = await claimed(keys, "acme", text.decode())
            claim.answered(rules, ("text/plain", text))
            claim.release()
            if kept:
                found = await keys.claim("acme", text.decode(), b"r")
                assert isinstance(found, Kept)
                assert found.body == text
                assert found.until_s > time.time()
            else:
                with pytest.raises(Refusal, match="was answered"):
                    await keys.claim("acme", text.decode(), b"r")
        await keys.close()

    asyncio.run(go())


def test_an_answer_is_never_said_to_another_request(tmp_path: Path) -> None:
    """Not even where another worker has used the key again, since this one gave its answer."""

    async def go() -> None:
        one, two = keys_of(tmp_path, 0), keys_of(tmp_path, 1)
        first = await claimed(one, "acme", "k")
        first.answered(Idempotency(window=0), None)  # another gateway's clock, or a full table, freed it early
        one.answers.keep(first.name, Idempotency(window=60), ("text/plain", b"mine"))
        second = await two.claim("acme", "k", b"another")
        assert isinstance(second, Claim)
        second.answered(Idempotency(window=60), ("text/plain", b"other"))
        with pytest.raises(Refusal, match="was answered"):
            await one.claim("acme", "k", b"another")
        for made in (one, two):
            await made.close()

    asyncio.run(go())
