"""Where requests go: prefixes are followed while the load allows it, and no replica becomes a hot spot."""

import asyncio
import json
import random
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.conftest import config_of, served, until
from tests.gateway.upstream import upstream

from setpoint.gateway.config import Model, Routing
from setpoint.gateway.demand import Demand
from setpoint.gateway.health import Watch
from setpoint.gateway.policies import make_policy
from setpoint.gateway.policies.policy import Candidate, Policy, Prompt
from setpoint.gateway.policies.prefix_aware import PrefixAware
from setpoint.gateway.prefix import BLOCK_TOKENS, PrefixIndex, chain
from setpoint.gateway.replica import Replica, now_us
from setpoint.gateway.shared import SharedTable
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, FaultKind, Script


def candidates(*facts: tuple[int, int, int]) -> list[Candidate]:
    return [Candidate(f"r{i}", flight, queued, cached) for i, (flight, queued, cached) in enumerate(facts)]


def prefix(window: int = 1000, bound: float = 1.25) -> PrefixAware:
    return PrefixAware(window_tokens=window, bound=bound, seed=1)


def test_the_longest_cached_prefix_wins_within_the_window() -> None:
    assert prefix().choose(candidates((0, 0, 0), (3, 500, 800), (1, 0, 300)), Prompt(1000, 7)) == 1


def test_a_cached_prefix_does_not_win_against_a_full_queue() -> None:
    assert prefix().choose(candidates((0, 0, 0), (9, 5000, 800)), Prompt(1000, 7)) == 0


def test_a_cold_prefix_goes_where_it_always_goes() -> None:
    policy = prefix(window=10**9)
    chosen = {policy.choose(candidates(*[(load, 0, 0)] * 4), Prompt(100, 42)) for load in range(1)}
    assert chosen == {policy.choose(candidates(*[(0, 0, 0)] * 4), Prompt(999, 42))}


def test_taking_a_replica_away_moves_only_its_own_prefixes() -> None:
    """Rendezvous hashing: nothing else changes place."""
    policy, four = prefix(window=10**9, bound=10), candidates(*[(0, 0, 0)] * 4)
    before = {key: four[policy.choose(four, Prompt(1, key))].name for key in range(200)}
    three = four[:3]
    after = {key: three[policy.choose(three, Prompt(1, key))].name for key in range(200)}
    assert all(after[key] == name for key, name in before.items() if name != "r3")


def test_one_popular_cold_prefix_spreads_when_its_home_is_full() -> None:
    policy, flight = prefix(window=10**9), [0] * 4
    for _ in range(400):
        seen = candidates(*[(n, 0, 0) for n in flight])
        flight[policy.choose(seen, Prompt(100, 42))] += 1
    assert max(flight) <= 1.25 * 400 / 4 + 2


def test_stale_loads_are_not_followed_blindly() -> None:
    """The better of two random ones, whatever is believed of caches and wherever a prefix has its home."""
    stale = [Candidate(f"r{i}", i, 0, 1000 * (i == 2), stale=True) for i in range(4)]
    policy = prefix()
    chosen = Counter(policy.choose(stale, Prompt(1000, 7)) for _ in range(600))
    assert set(chosen) == {0, 1, 2}  # never the worst of all, and not one alone
    assert [round(chosen[i] / 100) for i in range(3)] == [3, 2, 1]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10**5), st.integers(0, 10**4)), min_size=1, max_size=8),
    st.integers(0, 2**63),
    st.sampled_from(["prefix", "round-robin", "least-loaded", "random"]),
)
def test_every_policy_chooses_one_of_the_candidates(facts: list[tuple[int, int, int]], key: int, name: str) -> None:
    policy: Policy = make_policy(Routing.model_validate({"policy": name}))
    assert 0 <= policy.choose(candidates(*facts), Prompt(10**4, key)) < len(facts)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10**5), st.integers(0, 10**4)), min_size=2, max_size=8),
    st.integers(0, 10**4),
)
def test_nobody_beyond_the_window_is_chosen(facts: list[tuple[int, int, int]], tokens: int) -> None:
    seen = candidates(*facts)
    scores = [c.queued_tokens + max(0, tokens - c.cached_tokens) for c in seen]
    assert scores[prefix(window=100).choose(seen, Prompt(tokens, 1))] <= min(scores) + 100


# prefixes


def test_a_longer_conversation_begins_with_the_blocks_of_the_shorter(tmp_path: Path) -> None:
    first, second = b"a" * 5000, b"a" * 5000 + b"b" * 3000
    short, long = chain(b"s", (first,)), chain(b"s", (second,))
    assert long[: len(short)] == short
    assert len(long) == 7
    assert chain(b"t", (first,)) != short


def test_a_cache_mark_that_moves_changes_no_block() -> None:
    mark = b',"cache_control":{"type":"ephemeral"}'
    turn = b'{"role":"user","content":[{"type":"text","text":"%b"%b}]},' % (b"x" * 2000, b"%b")
    with_mark, without = (chain(b"s", (turn % one + b"y" * 1200,), marked=True) for one in (mark, b""))
    assert with_mark[:2] == without[:2]


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_cached_blocks_are_the_common_beginning(
    tmp_path_factory: pytest.TempPathFactory, common: int, own: int
) -> None:
    seeded = random.Random(common * 1000 + own)
    shared = [seeded.getrandbits(64) for _ in range(common)]
    index = PrefixIndex(tmp_path_factory.mktemp("i") / "index", 10**6)
    index.insert(shared + [seeded.getrandbits(64) for _ in range(own)])
    assert index.cached_blocks(shared + [seeded.getrandbits(64) for _ in range(50)]) == common
    index.close()


def test_the_index_forgets_what_was_used_least_recently(tmp_path: Path) -> None:
    seeded = random.Random(5)
    index = PrefixIndex(tmp_path / "index", 1024 * BLOCK_TOKENS)
    hot = [seeded.getrandbits(64) for _ in range(50)]
    cold = [seeded.getrandbits(64) for _ in range(50)]
    index.insert(hot)
    index.insert(cold)
    for _ in range(200):
        index.insert([seeded.getrandbits(64) for _ in range(20)])
        index.insert(hot)
    assert index.cached_blocks(hot) == 50
    assert index.cached_blocks(cold) < 50
    index.close()


def test_an_index_of_another_size_leaves_those_who_map_the_old_one_alive(tmp_path: Path) -> None:
    """Workers that drain after a reload read on in theirs: in a process of its own, since a fault would kill it."""
    code = (
        "import sys; from pathlib import Path; from setpoint.gateway.prefix import PrefixIndex\n"
        "old = PrefixIndex(Path(sys.argv[1]), 10**7); hashes = list(range(1, 2000)); old.insert(hashes)\n"
        "new = PrefixIndex(Path(sys.argv[1]), 10**4)\n"
        "print(old.cached_blocks(hashes), new.cached_blocks(hashes))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "index")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1999 0\n"), done.stderr


def test_processes_share_what_they_know_of_a_cache(tmp_path: Path) -> None:
    one, two = (PrefixIndex(tmp_path / "index", 10**6) for _ in range(2))
    one.insert([1, 2, 3])
    assert two.cached_blocks([1, 2, 3, 4]) == 3
    one.close()
    two.close()


# through the gateway


def test_turns_of_a_session_stay_where_their_prefix_is_and_receipts_say_so(state: Path) -> None:
    with ExitStack() as stack:
        script = Script(prefix_cache=True, template_tokens=0)
        engines = [stack.enter_context(fake_engine(script)) for _ in range(3)]
        gateway = stack.enter_context(served(config_of(state, *(e.url for e in engines))))
        for session in range(6):
            text = f"session {session} " * 400
            for turn in range(3):
                assert gateway.chat(text + f"and turn {turn} " * (40 * turn), stream=True).status == 200
        lines = gateway.ended(18)
    for session in range(6):
        turns = lines[session * 3 : session * 3 + 3]
        assert len({line.replica for line in turns}) == 1
        assert turns[0].predicted_tokens == 0
        assert all((line.predicted_tokens or 0) > 0 and (line.cached_tokens or 0) > 0 for line in turns[1:])
    assert len({line.replica for line in lines}) > 1


def test_load_counts_from_dispatch(state: Path) -> None:
    """Requests sent at once, before any has answered, are spread."""
    with ExitStack() as stack:
        engines = [stack.enter_context(fake_engine(Script(decode_s=0.05))) for _ in range(2)]
        model = {"routing": {"policy": "least-loaded"}}
        gateway = stack.enter_context(served(config_of(state, *(e.url for e in engines), model=model)))
        socks = []
        for _ in range(10):
            sock = stack.enter_context(gateway.raw())
            body = b'{"model":"fake","stream":true,"max_tokens":16,"messages":[]}'
            sock.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            socks.append(sock)
        replicas = gateway.plane.snapshot.routes["fake"].gate.replicas
        until(lambda: sum(r.in_flight for r in replicas) == 10)
        assert [r.in_flight for r in replicas] == [5, 5]


def test_a_prompt_stands_in_the_way_from_its_dispatch_to_its_first_token(state: Path) -> None:
    """Long prompts that no engine has said anything to yet are what a replica's score is made of."""
    with ExitStack() as stack:
        script = Script(decode_s=0.2, output_tokens=1000, faults=(Fault(kind=FaultKind.SLOW, seconds=1.5),))
        engines = [stack.enter_context(fake_engine(script)) for _ in range(2)]
        gateway = stack.enter_context(served(config_of(state, *(e.url for e in engines))))
        replicas = gateway.plane.snapshot.routes["fake"].gate.replicas
        for number in range(4):
            sock = stack.enter_context(gateway.raw())
            words = f"{number} " * 20_000
            body = json.dumps({"model": "fake", "stream": True, "messages": [{"role": "user", "content": words}]})
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            sock.sendall((head + body).encode())
            wanted = number + 1
            until(lambda: sum(r.in_flight for r in replicas) == wanted)  # noqa: B023 - waited for here
            loads = sorted(r.queued_tokens for r in replicas)
            assert [load > 10_000 for load in loads] == [number > 0, True]
        assert loads[0] == loads[1]
        until(lambda: not any(r.queued_tokens for r in replicas))
        assert sum(r.in_flight for r in replicas) == 4


def test_what_an_engine_says_of_its_load_and_cache_counts_until_it_is_stale(tmp_path: Path) -> None:
    exposition = (
        b'vllm:num_requests_running{m="x"} 5.0\nvllm:num_requests_waiting{m="x"} 2.0\n'
        b'vllm:cache_config_info{block_size="16",num_gpu_blocks="256"} 1.0\n'
    )

    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(exposition), exposition))
        return False

    with upstream(answer) as engine:
        table = SharedTable(tmp_path / "table", 1, 0)
        model = Model.model_validate({"replicas": [{"url": engine.url, "metrics_url": f"{engine.url}/metrics"}]})
        replica = Replica("m", model.replicas[0], model.health, table, tmp_path)

        def seen(after_s: float = 0.0, hashes: tuple[int, ...] = ()) -> Candidate:
            found = replica.candidate(list(hashes), None, None, now_us() + int(after_s * 1e6))
            assert found is not None
            return found

        assert seen().stale
        assert replica.take(100)
        asyncio.run(Watch(model, [replica], Demand("m", table))._read_load(replica))
        assert (seen().in_flight, seen().stale) == (7, False)  # the one of ours is one of the seven
        assert (seen(29).stale, seen(31).stale) == (False, True)
        replica.cached_tokens([1])  # learns how much the engine's cache holds: 16 blocks
        for number in range(1, 200):
            replica.index.insert([number])
        assert sum(seen(hashes=(number,)).cached_tokens > 0 for number in range(1, 200)) == 16


def test_a_batch_tenants_requests_wait_behind_others_whatever_they_say(state: Path) -> None:
    with fake_engine(Script()) as engine:
        config = config_of(state, engine.url)
        config["tenants"]["local"] = {"priority": "batch"}
        with served(config) as gateway:
            for fields in ({}, {"x_setpoint_class": "interactive"}, {"x_setpoint_class": "batch"}):
                assert gateway.chat(fields=fields).status == 200
            assert [line.priority for line in gateway.ended(3)] == ["batch"] * 3


def test_aliases_and_splits_lead_to_models(state: Path) -> None:
    with fake_engine(Script(model="a")) as one, fake_engine(Script(model="b")) as two:
        config = config_of(state, one.url)
        config["models"] = {
            "a": {"replicas": [{"url": one.url}], "aliases": ["gpt-x"], "health": {"canary": 0}},
            "b": {"replicas": [{"url": two.url}], "health": {"canary": 0}},
            "mixed": {"split": {"a": 1, "b": 1}},
        }
        with served(config) as gateway:
            assert gateway.chat(model="gpt-x").status == 200
            assert {gateway.chat(model="mixed").status for _ in range(20)} == {200}
            used = Counter(line.model for line in gateway.ended(21)[1:])
            assert set(used) == {"a", "b"}
            names = [m["id"] for m in gateway.call("GET", "/v1/models").json()["data"]]
            assert names == ["a", "gpt-x", "b", "mixed"]
