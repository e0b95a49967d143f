"""Who waits, who goes first, who is told to come back and when."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from setpoint.gateway.config import Model
from setpoint.gateway.demand import LOADING_SINCE_US, Demand
from setpoint.gateway.gate import MAX_PASSED_OVER, Gate, Lease, Ticket
from setpoint.gateway.refusal import Refusal
from setpoint.gateway.replica import EJECTED_UNTIL_US, LOADING, STATE, Replica, now_us
from setpoint.gateway.shared import SharedTable


def gate(tmp_path: Path, *, places: int = 1, replicas: int = 1, **queue: Any) -> Gate:
    table = SharedTable(tmp_path / "table", 1, 0)
    model = Model.model_validate(
        {
            "replicas": [{"url": f"http://127.0.0.1:{9000 + i}", "max_in_flight": places} for i in range(replicas)],
            "queue": queue,
        }
    )
    made = [Replica("m", one, model.health, table, tmp_path) for one in model.replicas]
    return Gate(model, made, lambda *_: None, Demand("m", table))


def ticket(
    tenant: str = "a", *, rank: int = 0, weight: float = 1.0, tokens: int = 100, within_s: float | None = None
) -> Ticket:
    deadline = None if within_s is None else time.monotonic() + within_s
    return Ticket(tenant, weight, rank, tokens, 1, [], deadline_s=deadline)


def with_prompt(tenant: str, *blocks: int) -> Ticket:
    return Ticket(tenant, 1.0, 0, 256 * len(blocks), blocks[0], list(blocks))


async def order_of(way: Gate, tickets: list[Ticket]) -> list[Ticket]:
    """The order in which tickets get the one place, each giving it back at once."""
    first = await way.enter(ticket("first"))
    order: list[Ticket] = []

    async def go(mine: Ticket) -> None:
        lease = await way.enter(mine)
        order.append(mine)
        await asyncio.sleep(0)
        lease.release()

    tasks = [asyncio.create_task(go(one)) for one in tickets]
    await asyncio.sleep(0.02)
    first.release()
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    return order


def test_interactive_goes_before_batch(tmp_path: Path) -> None:
    tickets = [ticket(rank=1), ticket(rank=1), ticket(rank=0)]
    order = asyncio.run(order_of(gate(tmp_path), tickets))
    assert order[0] is tickets[2]


def test_a_tenant_with_many_requests_does_not_go_before_one_with_few(tmp_path: Path) -> None:
    crowd, single = [ticket("crowd") for _ in range(20)], ticket("single")
    order = asyncio.run(order_of(gate(tmp_path), [*crowd, single]))
    assert order.index(single) <= 1


def test_weights_share_the_places(tmp_path: Path) -> None:
    tickets = [ticket("big", weight=3) for _ in range(40)] + [ticket("small") for _ in range(40)]
    order = asyncio.run(order_of(gate(tmp_path, interactive_wait=600), tickets))
    assert [t.tenant for t in order[:40]].count("big") in range(28, 33)


def test_long_prompts_weigh_more(tmp_path: Path) -> None:
    tickets = [ticket("long", tokens=4000) for _ in range(10)] + [ticket("short", tokens=400) for _ in range(40)]
    order = asyncio.run(order_of(gate(tmp_path, interactive_wait=600), tickets))
    assert [t.tenant for t in order[:22]].count("short") >= 18


async def warmed(way: Gate, prompt: Ticket) -> None:
    """The one replica has just computed this prompt."""
    (await way.enter(prompt)).release()


def test_a_free_place_goes_to_the_waiting_request_whose_prefix_is_there(tmp_path: Path) -> None:
    async def go() -> list[Ticket]:
        way = gate(tmp_path, interactive_wait=600)
        await warmed(way, with_prompt("a", 1, 2, 3))
        return await order_of(way, tickets)

    tickets = [with_prompt("a", 10), with_prompt("a", 20), with_prompt("a", 1, 2, 3, 4)]
    order = asyncio.run(go())
    assert order == [tickets[2], tickets[0], tickets[1]]


def test_a_request_is_passed_over_a_few_times_and_no_more(tmp_path: Path) -> None:
    async def go() -> list[Ticket]:
        way = gate(tmp_path, interactive_wait=600)
        await warmed(way, with_prompt("a", 1))
        return await order_of(way, [cold, *warm])

    cold, warm = with_prompt("a", 10), [with_prompt("a", 1, 100 + i) for i in range(12)]
    order = asyncio.run(go())
    assert order.index(cold) == MAX_PASSED_OVER


def test_a_prefix_that_is_there_does_not_go_before_another_tenants_turn(tmp_path: Path) -> None:
    async def go() -> list[Ticket]:
        way = gate(tmp_path, interactive_wait=600)
        await warmed(way, with_prompt("a", 1))
        return await order_of(way, tickets)

    tickets = [with_prompt("a", 10), with_prompt("b", 20), with_prompt("a", 1, 2)]
    order = asyncio.run(go())
    assert order == tickets


def test_a_request_whose_time_is_short_is_not_passed_over(tmp_path: Path) -> None:
    async def go() -> list[Ticket]:
        way = gate(tmp_path, interactive_wait=600)
        await warmed(way, with_prompt("a", 1))
        way._service_s = 1.0
        return await order_of(way, [hurried, with_prompt("a", 1, 2)])

    hurried = with_prompt("a", 10)
    hurried.deadline_s = time.monotonic() + 3
    assert asyncio.run(go())[0] is hurried


async def refusal_of(way: Gate, mine: Ticket) -> Refusal:
    with pytest.raises(Refusal) as raised:
        (await way.enter(mine)).release()
    return raised.value


def test_a_full_queue_is_an_answer(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path, size=2)
        held = await way.enter(ticket())
        waiting = [asyncio.create_task(way.enter(ticket())) for _ in range(2)]
        await asyncio.sleep(0)
        refusal = await refusal_of(way, ticket())
        assert (refusal.status, refusal.code) == (503, "queue_full")
        assert refusal.retry_after_s is not None
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        held.release()

    asyncio.run(go())


def test_in_a_full_queue_the_tenant_with_most_gives_way(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path, size=4)
        held = await way.enter(ticket())
        crowd = [asyncio.create_task(way.enter(ticket("crowd"))) for _ in range(4)]
        await asyncio.sleep(0)
        single = asyncio.create_task(way.enter(ticket("single")))
        await asyncio.sleep(0.02)
        failed = [task for task in crowd if task.done()]
        assert len(failed) == 1
        assert isinstance(failed[0].exception(), Refusal)
        held.release()
        for task in [crowd[0], single, *crowd[1:]]:
            if task not in failed:
                (await asyncio.wait_for(task, 5)).release()

    asyncio.run(go())


def test_who_cannot_be_served_in_time_is_told_at_once(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path)
        way._service_s = 30.0
        held = await way.enter(ticket())
        waiting = asyncio.create_task(way.enter(ticket()))
        await asyncio.sleep(0)
        refusal = await refusal_of(way, ticket(within_s=5))
        assert refusal.code == "deadline"
        assert refusal.retry_after_s == pytest.approx(30.0)
        held.release()
        (await waiting).release()

    asyncio.run(go())


def test_who_has_waited_too_long_is_told(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path, interactive_wait=0.05)
        held = await way.enter(ticket())
        assert (await refusal_of(way, ticket())).code == "queue_timeout"
        held.release()
        (await way.enter(ticket())).release()

    asyncio.run(go())


def test_a_loading_model_is_waited_for_and_then_is_a_503_with_a_time(tmp_path: Path) -> None:
    async def go() -> None:
        impatient = gate(tmp_path, loading_wait=0.1)
        impatient.replicas[0].row[STATE] = LOADING
        refusal = await refusal_of(impatient, ticket())
        assert (refusal.status, refusal.code) == (503, "loading")
        way = gate(tmp_path, loading_wait=60.0)
        replica = way.replicas[0]
        replica.row[STATE] = LOADING
        waiting = asyncio.create_task(way.enter(ticket()))
        await asyncio.sleep(0.02)
        replica.succeeded()  # of a request that was under way before
        await asyncio.sleep(0.02)
        assert not waiting.done()
        replica.ready()
        (await asyncio.wait_for(waiting, 5)).release()

    asyncio.run(go())


def test_a_stopped_model_is_asked_for_and_held(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path, replicas=2)
        for replica in way.replicas:
            replica.stopped()
        assert way.demand.asked_us == 0
        waiting = asyncio.create_task(way.enter(ticket()))
        await asyncio.sleep(0.02)
        assert way.demand.asked_us > 0  # whoever starts engines sees it
        way.replicas[0].down()
        way.replicas[1].loading()
        await asyncio.sleep(0.02)
        assert not waiting.done()
        way.replicas[1].ready()
        (await asyncio.wait_for(waiting, 5)).release()

    asyncio.run(go())


def test_the_time_after_which_to_try_again_is_what_is_left_of_the_load(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path, loading_wait=0.05)
        way.replicas[0].loading()
        way.demand.expect(40)
        way.demand.loading()
        refusal = await refusal_of(way, ticket())
        assert refusal.retry_after_s == pytest.approx(40, abs=1)
        way.demand._row[LOADING_SINCE_US] = now_us() - 30_000_000
        assert (await refusal_of(way, ticket())).retry_after_s == pytest.approx(10, abs=1)
        way.demand._row[LOADING_SINCE_US] = now_us() - 65_000_000  # late by 25 s: as long again
        assert (await refusal_of(way, ticket())).retry_after_s == pytest.approx(25, abs=1)
        way.demand.expect(0)  # unknown: as long again as it has taken
        assert (await refusal_of(way, ticket())).retry_after_s == pytest.approx(65, abs=1)
        way.demand.loaded()
        way.replicas[0].stopped()
        assert (await refusal_of(way, ticket())).retry_after_s == pytest.approx(65, abs=1)  # as the last load took

    asyncio.run(go())


def test_who_cannot_wait_for_a_load_is_told_at_once(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path)
        way.replicas[0].loading()
        way.demand.expect(40)
        way.demand.loading()
        refusal = await asyncio.wait_for(refusal_of(way, ticket(within_s=20)), 10)
        assert refusal.code == "loading"
        assert refusal.retry_after_s == pytest.approx(40, abs=1)

    asyncio.run(go())


def test_the_queue_of_a_loading_model_is_bounded(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path, size=2)
        way.replicas[0].loading()
        way.demand.expect(40)
        waiting = [asyncio.create_task(way.enter(ticket())) for _ in range(2)]
        await asyncio.sleep(0)
        refusal = await refusal_of(way, ticket())
        assert refusal.code == "queue_full"
        assert refusal.retry_after_s == pytest.approx(40, abs=1)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(go())


def test_an_ejected_replica_comes_back_one_request_at_a_time(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path, places=8)
        replica = way.replicas[0]
        for _ in range(3):
            replica.failed()
        refusal = await refusal_of(way, ticket())
        assert refusal.code == "no_replica"
        assert refusal.retry_after_s == pytest.approx(5.0, abs=0.5)
        replica.row[EJECTED_UNTIL_US] = now_us()
        trial = await way.enter(ticket())
        second = asyncio.create_task(way.enter(ticket()))
        await asyncio.sleep(0.03)
        assert not second.done()
        replica.succeeded()
        trial.release()
        (await asyncio.wait_for(second, 5)).release()

    asyncio.run(go())


def test_each_ejection_is_longer_than_the_one_before_up_to_ten_times(tmp_path: Path) -> None:
    (replica,) = gate(tmp_path).replicas
    cooldowns = []
    for _ in range(2):
        replica.failed()
    assert replica.available()
    for _ in range(6):
        replica.failed()
        cooldowns.append(round(replica.ejected_for_s / 5.0, 1))
    assert cooldowns == [1, 2, 4, 8, 10, 10]
    replica.succeeded()
    assert replica.available()


def test_a_place_that_comes_as_its_client_leaves_is_not_lost(tmp_path: Path) -> None:
    async def go() -> None:
        way = gate(tmp_path)
        held: Lease = await way.enter(ticket())
        waiting = asyncio.create_task(way.enter(ticket()))
        await asyncio.sleep(0)
        held.release()  # the place goes to the one who waits
        waiting.cancel()  # who leaves in the same moment
        await asyncio.gather(waiting, return_exceptions=True)
        assert way.replicas[0].in_flight == 0
        (await asyncio.wait_for(way.enter(ticket()), 5)).release()

    asyncio.run(go())


def test_one_that_waits_for_a_full_replica_does_not_keep_others_from_a_free_one(tmp_path: Path) -> None:
    """A retry may not go to the replica that failed it: whoever may need not wait behind it."""

    async def go() -> None:
        way = gate(tmp_path, replicas=2)
        free, full = way.replicas
        (held,) = [await way.enter(Ticket("a", 1.0, 0, 100, 1, [], exclude={free.name}))]
        again = asyncio.create_task(way.enter(Ticket("a", 1.0, 0, 100, 1, [], exclude={free.name})))
        await asyncio.sleep(0)
        for mine in (ticket("a"), ticket("b"), ticket("b", rank=1)):
            lease = await asyncio.wait_for(way.enter(mine), 5)
            assert lease.replica is free
            lease.release()
        assert not again.done()
        held.release()
        assert (await asyncio.wait_for(again, 5)).replica is full

    asyncio.run(go())
