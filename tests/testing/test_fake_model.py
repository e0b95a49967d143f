"""What can be planted in the fake engine's model."""

import asyncio

from setpoint.testing.fake_model import FakeModel
from setpoint.testing.script import Script


async def answer(model: FakeModel, prompt: int, count: int) -> int:
    return len([n async for n in model.tokens(["w"] * prompt, count)])


def serve(script: Script, requests: int, prompt: int = 20, count: int = 20) -> tuple[FakeModel, list[int]]:
    model = FakeModel(script)

    async def all_of_them() -> list[int]:
        return list(await asyncio.gather(*(answer(model, prompt, count) for _ in range(requests))))

    return model, asyncio.run(all_of_them())


def test_a_cache_that_is_too_small_preempts_and_still_answers_everything() -> None:
    model, lengths = serve(Script(slots=4, kv_tokens=100, decode_s=0.0005), 4)
    assert lengths == [20] * 4
    assert model.counters.preemptions > 0
    assert (model.counters.running, model.counters.waiting) == (0, 0)


def test_a_cache_with_room_never_preempts() -> None:
    model, _ = serve(Script(slots=4, kv_tokens=10_000, decode_s=0.0005), 4)
    assert model.counters.preemptions == 0


def test_shy_admission_leaves_slots_and_memory_free() -> None:
    model = FakeModel(Script(slots=8, kv_tokens=400, admit_usage=0.2, decode_s=0.001))

    async def watch() -> tuple[int, int]:
        tasks = [asyncio.create_task(answer(model, 20, 10)) for _ in range(8)]
        await asyncio.sleep(0.005)
        seen = model.counters.running, model.counters.waiting
        await asyncio.gather(*tasks)
        return seen

    running, waiting = asyncio.run(watch())
    assert running == 2  # two prompts of 28 tokens fit in 80
    assert waiting == 6


def test_accepted_drafts_make_several_tokens_a_step() -> None:
    model, lengths = serve(Script(draft_tokens=4, acceptance=0.5, decode_s=0.0005), 1, count=30)
    assert lengths == [30]
    assert model.counters.drafted_tokens == 40  # ten steps of three tokens
    assert model.counters.accepted_tokens == 20
    assert "vllm:spec_decode_num_accepted_tokens_total" in model.exposition()


def test_a_wedged_engine_takes_requests_and_generates_nothing() -> None:
    model = FakeModel(Script(wedge_after=1, decode_s=0.0005))

    async def watch() -> int:
        assert await answer(model, 4, 3) == 3
        task = asyncio.create_task(answer(model, 4, 3))
        done, _ = await asyncio.wait([task], timeout=0.05)
        running = model.counters.running
        assert not done
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return running

    assert asyncio.run(watch()) == 1
    assert model.counters.running == 0


def test_a_request_cancelled_while_it_waits_leaves_no_trace() -> None:
    model = FakeModel(Script(slots=1, decode_s=0.001))

    async def watch() -> None:
        first = asyncio.create_task(answer(model, 4, 20))
        await asyncio.sleep(0)
        second = asyncio.create_task(answer(model, 4, 20))
        await asyncio.sleep(0.003)
        second.cancel()
        assert await first == 20
        await asyncio.gather(second, return_exceptions=True)
        assert await answer(model, 4, 2) == 2

    asyncio.run(watch())
    assert (model.counters.running, model.counters.waiting) == (0, 0)
