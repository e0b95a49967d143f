"""Observations made by rule, for the tests of diagnosis: a target whose costs are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.observation import Observation, Readings
from setpoint.metrics.table import ExchangeTable
from setpoint.records.exchange import Exchange, Outcome
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule

GOOD_CLIENT: dict[str, Any] = {"good": True, "reasons": [], "cpu_share": 0.05, "workers": 1}


@dataclass(frozen=True, slots=True)
class Costs:
    """What one exchange costs, in seconds."""

    overhead_s: float = 0.01
    prefill_s: float = 0.0002  # a token
    step_s: float = 0.01
    queue_s: float = 0.0
    upstream_s: float = 0.0
    lag_s: float = 0.0
    reasoning: int = 0
    stall_s: float = 0.0  # in the middle of the answer


def exchange(
    index: int, at: float, costs: Costs, *, prompt: int = 100, output: int = 16, streams: int = 1,
    per_stream_s: float = 0.0, outcome: Outcome = Outcome.COMPLETE, cached: int | None = None, turn: int = 0,
    session: int | None = None,
) -> Exchange:  # fmt: skip
    """One exchange under these costs; one that is not answered has no token and ends after 100 ms."""
    sent = at + costs.lag_s
    wait = costs.overhead_s + costs.prefill_s * (prompt - (cached or 0)) + costs.queue_s + costs.upstream_s
    step = costs.step_s + per_stream_s * (streams - 1)
    times = [sent + wait + step * i for i in range(output)] if outcome.answered else []
    times = [t + (costs.stall_s if i >= output // 2 else 0.0) for i, t in enumerate(times)]
    return answered(
        index, at, sent, times, prompt=prompt, output=output, outcome=outcome, cached=cached, turn=turn,
        session=session, reasoning=costs.reasoning,
    )  # fmt: skip


def answered(
    index: int, at: float, sent: float, times: list[float], *, prompt: int, output: int,
    outcome: Outcome = Outcome.COMPLETE, cached: int | None = None, turn: int = 0, session: int | None = None,
    reasoning: int = 0,
) -> Exchange:  # fmt: skip
    """One exchange whose tokens arrived at these times."""
    kinds = "r" * min(reasoning, output) + "c" * max(output - reasoning, 0) if times else ""
    visible = [t for t, k in zip(times, kinds, strict=True) if k == "c"]
    return Exchange(
        index=index, session=index if session is None else session, turn=turn, warmup=False, worker=0, scheduled_s=at,
        started_s=sent, connected_s=sent, sent_s=sent, headers_s=times[0] if times else None,
        first_token_s=times[0] if times else None, first_visible_s=visible[0] if visible else None,
        last_token_s=times[-1] if times else None, done_s=times[-1] + 0.001 if times else sent + 0.1, chunk_s=times,
        chunk_tokens=[1] * len(times), chunk_kinds=kinds, outcome=outcome, status=200 if times else 500,
        finish_reason="stop" if times else None, error=None, retry_after_s=None, planned_prompt_tokens=prompt,
        planned_output_tokens=output, prompt_tokens=prompt if times else None,
        completion_tokens=output if times else None, cached_tokens=cached,
        reasoning_tokens=None, tokens_source="usage" if times else "chunks",
        visible_chars=4 * len(visible), reasoning_chars=0, tool_calls=0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Batching:
    """An engine that computes prompts and decode steps in one batch: its streams wait for the whole of it.

    Attributes:
        step_s: A decode step of one stream.
        stream_s: Added by each further stream.
        prefill_s: A prompt token.
        chunk: Prompt tokens that one batch takes at most: llama.cpp's ``n_batch``, vLLM's ``max_num_batched_tokens``.
        slots: Requests at once; others wait.
        jitter: Relative spread of a batch's time.
    """

    step_s: float = 0.03
    stream_s: float = 0.002
    prefill_s: float = 0.004
    chunk: int = 2048
    slots: int = 4
    jitter: float = 0.2

    def serve(self, plan: Schedule, seed: int = 1) -> list[Exchange]:
        """What clients see of a schedule of sessions of one turn, in open or closed loop."""
        random = np.random.default_rng(seed)
        todo = [(s.start_s, i, s.turns[0]) for i, s in enumerate(plan.sessions)]
        users = plan.concurrency or 0
        coming = sorted([(0.0, i, t) for _, i, t in todo[:users]] if users else [(a or 0.0, i, t) for a, i, t in todo])
        later = [(i, t) for _, i, t in todo[users:]] if users else []
        running: list[_Slot] = []
        done: list[Exchange] = []
        now = 0.0
        while coming or running:
            if not running and coming[0][0] > now:
                now = coming[0][0]
            while coming and coming[0][0] <= now and len(running) < self.slots:
                at, index, turn = coming.pop(0)
                running.append(_Slot(at, index, turn.prompt_tokens, turn.output_tokens, turn.prompt_tokens, []))
            streams = [s for s in running if not s.left]
            room = self.chunk - len(streams)
            decode_s = self.step_s + self.stream_s * max(len(streams) - 1, 0) if streams else 0.0
            ready = list(streams)
            for slot in running:
                if slot.left and room > 0:
                    part = min(slot.left, room)
                    slot.left, room = slot.left - part, room - part
                    ready += [slot] if not slot.left else []
            computed = self.chunk - len(streams) - room
            now += (decode_s + self.prefill_s * computed) * float(1 + self.jitter * random.uniform(-1, 1))
            for slot in ready:
                slot.times.append(now)
            for slot in [s for s in running if len(s.times) == s.output]:
                running.remove(slot)
                done.append(
                    answered(slot.index, slot.at, slot.at, slot.times, prompt=slot.prompt, output=slot.output)
                )  # fmt: skip
                if later and now < plan.duration_s:
                    index, turn = later.pop(0)
                    coming.append((now + 0.001, index, turn))
        return done


@dataclass(slots=True)
class _Slot:
    at: float
    index: int
    prompt: int
    output: int
    left: int
    times: list[float]


def card(*promises: str, **traffic: Any) -> Workload:  # noqa: ANN401 - any field of traffic
    """A card with these promises."""
    return Workload.model_validate(
        {
            "apiVersion": "setpoint/v1",
            "kind": "Workload",
            "name": "test",
            "traffic": {
                "arrivals": {"process": "poisson", "rate": "2/s"}, "prompt_tokens": 100, "output_tokens": 16,
            } | traffic,
            "promises": list(promises),
        }
    )  # fmt: skip


def observe(
    rows: Sequence[Exchange],
    workload: Workload,
    *,
    probe: str | None = None,
    gauges: Mapping[str, float] | None = None,
    counters: Mapping[str, float] | None = None,
    flags: Mapping[str, object] | None = None,
    client: Mapping[str, Any] = GOOD_CLIENT,
    engine: str = "vllm",
) -> Observation:
    """An observation of these exchanges; gauges stay at a value, counters rise by so much over the run."""
    table = ExchangeTable.from_exchanges(rows)
    times = np.linspace(0.0, max(float(table.done_s.max()), 1.0), 12)
    signals = {n: Readings(times, np.full(len(times), v)) for n, v in (gauges or {}).items()}
    signals |= {n: Readings(times, np.linspace(0.0, v, len(times))) for n, v in (counters or {}).items()}
    pins = {"engine": engine, "engine_flags": dict(flags or {})}
    empty = np.full(len(table), np.nan)
    return Observation("run", probe, table, signals, pins, workload, client, 8, empty)


def ladder(workload: Workload, costs: Costs, **more: Any) -> Observation:  # noqa: ANN401 - of ``observe``
    """The prompt ladder's run against a target with these costs."""
    alone = replace(costs, queue_s=0.0, lag_s=0.0, stall_s=0.0, reasoning=0)
    lengths = [20, 60, 100, 200] * 5
    rows = [exchange(i, i * 2.0, alone, prompt=n, output=2) for i, n in enumerate(lengths)]
    return observe(rows, workload, probe="prompt_ladder", **more)


def outputs(workload: Workload, costs: Costs) -> Observation:
    """The output ladder's run."""
    alone = replace(costs, queue_s=0.0, lag_s=0.0, stall_s=0.0, reasoning=0)
    rows = [exchange(i, i * 5.0, alone, prompt=(20, 200)[i % 2], output=(8, 24)[i % 3 > 0]) for i in range(12)]
    return observe(rows, workload, probe="output_ladder")


def evidence(workload: Workload, rows: Sequence[Exchange], *others: Observation, **more: Any) -> Evidence:  # noqa: ANN401
    """A subject of these exchanges, with other runs."""
    return Evidence(observe(rows, workload, **more), others)
