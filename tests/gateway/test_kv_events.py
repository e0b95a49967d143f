"""What an engine's KV cache events tell of its prefix cache, from a real ZMQ publisher in vLLM's wire format.

vLLM itself is asked in tests/fleet/test_vllm.py.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from array import array
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from tests.gateway.conftest import Served, config_of, served, until
from tests.gateway.upstream import Upstream, chunked, upstream

from setpoint.errors import CardError
from setpoint.gateway.config import KvEvents as Source
from setpoint.gateway.kv_events import KvEvents
from setpoint.gateway.kv_index import EventError, KvIndex
from setpoint.gateway.reading import parse_config
from setpoint.gateway.replica import Replica
from setpoint.protocol.conformance import chat, say, sse

SIZE = 4  # tokens of a block


def stored(
    tokens: list[int],
    first: int,
    parent: int | None = None,
    *,
    maps: bool = False,
    salt: str | None = None,
    **other: Any,
) -> Any:
    """The event of whole blocks, with engine hashes from ``first``."""
    count = len(tokens) // SIZE
    extra = [[salt] if salt and not i and parent is None else None for i in range(count)] if salt else None
    fields = {
        "block_hashes": list(range(first, first + count)),
        "parent_block_hash": parent,
        "token_ids": tokens[: count * SIZE],
        "block_size": SIZE,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": extra,
    } | other
    return {"type": "BlockStored"} | fields if maps else ["BlockStored", *fields.values()]


def removed(*hashes: int, maps: bool = False) -> Any:
    if maps:
        return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU"}
    return ["BlockRemoved", list(hashes), "GPU"]


def ids(tokens: list[int]) -> bytes:
    return array("I", tokens).tobytes()


def index_of(*events: Any, maps: bool = False) -> KvIndex:
    index = KvIndex()
    index.clear(complete=True)
    for event in events:
        index.apply(msgspec.msgpack.encode({"ts": 1.0, "events": [event]} if maps else [1.0, [event], 0]))
    return index


PROMPT = list(range(100, 122))  # five whole blocks and two tokens


@pytest.mark.parametrize("maps", [False, True], ids=["arrays", "maps"])
def test_a_prompt_is_cached_as_far_as_its_blocks_are_held(maps: bool) -> None:
    index = index_of(stored(PROMPT, 1, maps=maps), maps=maps)
    assert index.cached_tokens(ids(PROMPT), None) == 20
    assert index.cached_tokens(ids(PROMPT[:8]), None) == 4  # the last token is always computed
    assert index.cached_tokens(ids([*PROMPT[:8], *[0] * 12]), None) == 8
    assert index.cached_tokens(ids(PROMPT[4:]), None) == 0
    index.apply(msgspec.msgpack.encode([1.0, [removed(3, maps=maps)], 0]))
    assert index.cached_tokens(ids(PROMPT), None) == 8
    index.apply(msgspec.msgpack.encode([1.0, [["AllBlocksCleared"]], 0]))
    assert index.cached_tokens(ids(PROMPT), None) == 0
    assert index.complete


def test_later_blocks_hang_on_their_parents() -> None:
    index = index_of(stored(PROMPT[:8], 1), stored(PROMPT[8:20], 3, parent=2))
    assert index.cached_tokens(ids(PROMPT), None) == 20
    assert len(index_of(stored(PROMPT[8:20], 3, parent=2))) == 0  # nobody knows what it continues


def test_hashes_may_be_bytes() -> None:
    event = stored(PROMPT[:8], 1)
    event[1] = [b"a" * 32, b"b" * 32]
    index = index_of(event, ["BlockRemoved", [b"b" * 32], "GPU"])
    assert index.cached_tokens(ids(PROMPT), None) == 4


def test_a_salted_block_is_no_hit_for_another_salt() -> None:
    index = index_of(stored(PROMPT, 1, salt="acme"))
    assert index.cached_tokens(ids(PROMPT), "acme") == 20
    assert index.cached_tokens(ids(PROMPT), "other") == 0
    assert index.cached_tokens(ids(PROMPT), None) == 0


def test_an_engine_that_does_not_tell_salts_apart_is_not_believed_about_salted_prompts() -> None:
    old = stored(PROMPT, 1)[:6]  # hashes, parent, tokens, size, LoRA: as the first releases with events sent it
    index = index_of(old)
    assert index.cached_tokens(ids(PROMPT), "acme") is None
    assert index.cached_tokens(ids(PROMPT), None) == 20


def test_blocks_of_a_group_with_a_window_are_passed_over_and_no_error() -> None:
    """vLLM names only those that the window keeps, beside the tokens of all of them."""
    window = stored(PROMPT, 7, block_hashes=[7, 8], group_idx=1)
    index = index_of(stored(PROMPT, 1), window)
    assert index.cached_tokens(ids(PROMPT), None) == 20


def test_an_unfinished_last_block_leaves_the_size_of_blocks_as_it_is() -> None:
    half = stored(PROMPT, 9, parent=5, block_hashes=[9], token_ids=PROMPT[20:22], block_size=2)
    index = index_of(stored(PROMPT, 1), half)
    assert index.cached_tokens(ids([*PROMPT, 0]), None) == 20
    index.clear(complete=True)
    index.apply(
        msgspec.msgpack.encode([1.0, [stored(PROMPT, 9, block_hashes=[9], token_ids=PROMPT[:2], block_size=2)]])
    )
    assert index.cached_tokens(ids(PROMPT), None) == 2  # an engine that began again may have another size


@pytest.mark.parametrize("other", [{"medium": "CPU"}, {"lora_id": 3}, {"group_idx": 1}])
def test_what_no_prompt_of_the_model_can_hit_is_not_followed(other: dict[str, Any]) -> None:
    assert len(index_of(stored(PROMPT, 1, **other))) == 0


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1",
        msgspec.msgpack.encode("text"),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, [["BlockMoved", [1]]], 0]),
        msgspec.msgpack.encode([1.0, [["BlockStored", [1], None]], 0]),
        msgspec.msgpack.encode([1.0, [stored(PROMPT, 1, token_ids=[1, 2])], 0]),
        msgspec.msgpack.encode([1.0, [stored(PROMPT, 1, token_ids=[-1] * 20)], 0]),
        msgspec.msgpack.encode({"ts": 1.0, "events": [{"kind": "BlockStored"}]}),
    ],
)
def test_what_is_no_event_is_an_error(payload: bytes) -> None:
    with pytest.raises(EventError):
        KvIndex().apply(payload)


# over ZMQ


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


class Publisher:
    """The publishing process."""

    def __init__(self, port: int, replay: int, kept: int = 100) -> None:
        self.source = Source(endpoint=f"tcp://127.0.0.1:{port}", replay=f"tcp://127.0.0.1:{replay}")
        command = [sys.executable, str(Path(__file__).with_name("kv_publisher.py")), str(port), str(replay), str(kept)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, what: str, *events: Any, maps: bool = False, **other: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, "events": events, "maps": maps} | other) + "\n")
        self.process.stdin.flush()
        assert self._read() == "ok"

    def publish(self, *events: Any, maps: bool = False) -> None:
        self.do("publish", *events, maps=maps)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


@contextlib.contextmanager
def publisher(kept: int = 100) -> Iterator[Publisher]:
    made = Publisher(free_port(), free_port(), kept)
    try:
        yield made
    finally:
        made.kill()


def follow(source: Source, story: Callable[[KvEvents], Awaitable[None]]) -> None:
    """Runs a story beside a follower of events."""

    async def go() -> None:
        events = KvEvents("r0", source)
        task = asyncio.create_task(events.run())
        try:
            async with asyncio.timeout(30):
                await story(events)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    uvloop.run(go())  # as worker processes do


async def told(true: Callable[[], Any], again: Callable[[], None] = lambda: None) -> None:
    while not true():
        again()
        await asyncio.sleep(0.02)


def nothing() -> Any:
    """An event that changes nothing, to be told the state by."""
    return removed(10**9)


async def joined(events: KvEvents, engine: Publisher) -> None:
    await told(lambda: events._connected)
    await told(lambda: events.live, lambda: engine.publish(nothing()))


def test_events_before_the_connection_are_replayed() -> None:
    with publisher() as engine:
        engine.publish(stored(PROMPT, 1))
        engine.publish(removed(5))

        async def story(events: KvEvents) -> None:
            await joined(events, engine)
            assert events.cached_tokens(ids(PROMPT), None) == 16
            assert events.index.complete
            engine.publish(stored(PROMPT[16:20], 9, parent=4))
            await told(lambda: events.cached_tokens(ids(PROMPT), None) == 20)

        follow(engine.source, story)


def test_a_gap_is_filled_by_replay() -> None:
    with publisher() as engine:

        async def story(events: KvEvents) -> None:
            await joined(events, engine)
            engine.publish(stored(PROMPT, 1))
            engine.do("lose", removed(2))
            engine.publish(nothing())
            await told(lambda: events.cached_tokens(ids(PROMPT), None) == 4)
            assert events.index.complete
            assert events.losses == 0

        follow(engine.source, story)


def test_a_gap_that_cannot_be_filled_makes_what_was_known_be_forgotten() -> None:
    with publisher(kept=1) as engine:

        async def story(events: KvEvents) -> None:
            await joined(events, engine)
            engine.publish(stored(PROMPT, 1))
            await told(lambda: events.cached_tokens(ids(PROMPT), None) == 20)
            engine.do("lose", removed(2))
            engine.do("lose", nothing())
            before = events.losses
            engine.publish(nothing())
            await told(lambda: events.losses == before + 1)
            assert events.cached_tokens(ids(PROMPT), None) == 0
            assert not events.index.complete  # so that what is believed counts as well

        follow(engine.source, story)


def test_an_engine_that_began_again_has_an_empty_cache() -> None:
    with publisher() as engine:
        ports = [int(where.rpartition(":")[2]) for where in (engine.source.endpoint, engine.source.replay or "")]

        async def story(events: KvEvents) -> None:
            await joined(events, engine)
            engine.publish(stored(PROMPT, 1))
            await told(lambda: events.cached_tokens(ids(PROMPT), None) == 20)
            engine.kill()
            await told(lambda: not events.live)
            assert events.cached_tokens(ids(PROMPT), None) is None  # nothing is known of an engine that is away
            again = Publisher(*ports)
            try:
                await joined(events, again)
                assert events.cached_tokens(ids(PROMPT), None) == 0
                assert events.index.complete
            finally:
                again.kill()

        follow(engine.source, story)


def test_another_version_of_the_events_is_not_used_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with publisher() as engine:

        async def story(events: KvEvents) -> None:
            await joined(events, engine)
            engine.publish(stored(PROMPT, 1))
            engine.publish(["BlockMoved", [1], [2]])
            await told(lambda: events.fault is not None)
            engine.do("raw", frames=["one", "two"])
            engine.publish(stored(PROMPT, 1))
            await asyncio.sleep(0.2)
            assert events.cached_tokens(ids(PROMPT), None) is None
            assert len(events.index) == 0

        follow(engine.source, story)
    assert len([r for r in caplog.records if "are not used" in r.getMessage()]) == 1


# through the gateway


def tokens_of(text: str) -> list[int]:
    return [ord(c) for c in text]


def answer(sock: socket.socket, request: bytes) -> bool:
    """An engine that tokenizes by characters, and answers any prompt alike."""
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    if request.startswith(b"POST /tokenize "):
        told = tokens_of(body["messages"][0]["content"])
        data = json.dumps({"count": len(told), "max_model_len": 4096, "tokens": told}).encode()
        sock.sendall(chunked(data, kind="application/json"))
        return False
    sock.sendall(chunked(sse(say("Hi"), chat(finish="stop"), "[DONE]")))
    return True


def serving(engines: list[Upstream], publishers: list[Publisher], state: Path) -> dict[str, Any]:
    config = config_of(state, *(e.url for e in engines))
    for replica, one in zip(config["models"]["fake"]["replicas"], publishers, strict=True):
        replica["kv_events"] = one.source.model_dump()
    return config


def known(replica: Replica) -> int:
    """Blocks that a replica's events tell of."""
    return len(replica.events.index) if replica.events is not None else 0


def told_of(blocks: dict[Replica, int]) -> bool:
    return all(known(replica) == count for replica, count in blocks.items())


def salted(gateway: Served) -> str:
    return gateway.plane.salt("local")


def test_a_request_goes_where_events_say_its_prefix_is(state: Path) -> None:
    """No request was routed before: nothing is believed, and what is cached is known from the engine alone."""
    text = "abcd" * 50
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(upstream(answer)) for _ in range(2)]
        publishers = [stack.enter_context(publisher()) for _ in range(2)]
        gateway = stack.enter_context(served(serving(engines, publishers, state)))
        replicas = gateway.plane.snapshot.routes["fake"].gate.replicas
        salt = salted(gateway)

        def live() -> bool:
            for one in publishers:
                one.publish(nothing())
            return all(r.events is not None and r.events.live for r in replicas)

        until(live)
        for holder in (1, 0, 1):
            for one in publishers:
                one.publish(["AllBlocksCleared"])
            publishers[holder].publish(stored(tokens_of(text), 1, salt=salt))
            publishers[1 - holder].publish(stored(tokens_of("other text here!"), 1, salt=salt))
            held, free = replicas[holder], replicas[1 - holder]
            until(partial(told_of, {held: 50, free: 4}))
            assert gateway.chat(text + "!", stream=True).status == 200
        lines = gateway.ended(3)
        assert [line.replica for line in lines] == ["r1", "r0", "r1"]
        assert [line.predicted_tokens for line in lines] == [200, 200, 200]


def test_evictions_that_events_tell_change_what_is_predicted(state: Path) -> None:
    text = "abcd" * 400
    with upstream(answer) as engine, publisher() as one, served(serving([engine], [one], state)) as gateway:
        (replica,) = gateway.plane.snapshot.routes["fake"].gate.replicas
        assert gateway.chat(text, stream=True).status == 200  # nothing has been told yet: the believed prefix counts
        assert gateway.chat(text, stream=True).status == 200
        assert (gateway.ended(2)[-1].predicted_tokens or 0) > 0

        def live() -> bool:
            one.publish(stored(tokens_of(text), 1, salt=salted(gateway)))
            return replica.events is not None and replica.events.live

        until(live)
        one.publish(removed(*range(101, 401)))
        until(lambda: known(replica) == 100)
        assert gateway.chat(text, stream=True).status == 200
        assert gateway.ended(3)[-1].predicted_tokens == 400


def test_without_its_library_the_configuration_says_what_to_install(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(state, "http://127.0.0.1:1")
    config["models"]["fake"]["replicas"][0]["kv_events"] = {"endpoint": "tcp://127.0.0.1:1"}
    text = json.dumps(config).encode()
    assert parse_config(text, "gateway.yaml").models["fake"].replicas[0].kv_events is not None
    monkeypatch.setattr("setpoint.gateway.reading.find_spec", lambda name: None)
    with pytest.raises(CardError, match=r"setpoint\[gateway\]"):
        parse_config(text, "gateway.yaml")


@pytest.mark.parametrize("endpoint", ["http://x:1", "tcp://*:5557", "x"])
def test_an_address_of_events_is_one_to_connect_to(state: Path, endpoint: str) -> None:
    config = config_of(state, "http://127.0.0.1:1")
    config["models"]["fake"]["replicas"][0]["kv_events"] = {"endpoint": endpoint}
    with pytest.raises(CardError, match=r"such as tcp://10\.0\.0\.5:5557"):
        parse_config(json.dumps(config).encode(), "gateway.yaml")


def test_without_token_ids_in_time_the_believed_prefix_decides(state: Path) -> None:
    def silent(sock: socket.socket, request: bytes) -> bool:
        if request.startswith(b"POST /tokenize "):
            return sock.recv(1) != b""
        return answer(sock, request)

    text = "abcd" * 1000
    with upstream(silent) as engine, publisher() as one, served(serving([engine], [one], state)) as gateway:
        (replica,) = gateway.plane.snapshot.routes["fake"].gate.replicas

        def live() -> bool:
            one.publish(nothing())
            return replica.events is not None and replica.events.live

        until(live)
        assert [gateway.chat(text, stream=True).status for _ in range(2)] == [200, 200]
        assert (gateway.ended(2)[-1].predicted_tokens or 0) > 0
