"""From work and tuned terms to time: a step, then what a session sees of an engine that it shares with others.

Everything is on arrays, one element a case, so that the fit, a search over concurrency and a single estimate are the
same code.

A component takes the longer of its memory and compute time, rounded at the corner: ``sqrt(m² + c²)``. A decode step
adds the components, the collectives and a floor of kernels that a graph replays; a prefill's kernels are launched by
the host, which matters only where it is slower than the work, so there the floor is rounded with the sum.

Sessions and queueing. ``sessions`` keep asking, each ``output`` tokens after its last prompt. Those that fit
(``slots``) run, ``running`` of them. While one request lives, every running session prefills about once, and that
holds all of them up:

    tpot = step + interference · running / (output + first / tpot) · prefill
    first = host + prefill + visible · tpot + burst · (running - 1) · decoding ^ decay · prefill + queue(b) · prefill
    ttft = first + (sessions / running - 1) · (output · tpot + first)

with ``b`` the busy share, that of time spent on prefill, ``decoding = 1 - b`` and ``queue(b) = queue · b / (1 - b)``;
the last term is Little's law for those that wait for a slot.
"""

from dataclasses import dataclass

import numpy as np

from setpoint.sizing.latency.tuned import Tuned
from setpoint.sizing.latency.work import FloatArray, Work

_ROUNDS = 4
_BUSIEST = 0.95
DRAFTED = 3


def _corner(memory: FloatArray, compute: FloatArray) -> FloatArray:
    return np.hypot(memory, compute)


def components(work: Work[FloatArray], t: Tuned[FloatArray]) -> dict[str, FloatArray]:
    """Seconds by component of a step, without its floor."""
    products = work.wide_s / t.wide + work.eight_s / t.eight + work.four_s / t.four
    routed = (work.routed_s + t.tile_rows * work.row_s) / t.experts
    return {
        "dense": _corner(work.weights_s / t.memory, products),
        "experts": _corner(work.experts_s / t.memory_experts, routed),
        "attention": _corner(work.cache_s / t.memory_cache, work.attention_s / t.attention),
        "links": work.reduced_s / t.link + work.reduced_steps * t.collective_s,
        "activations": work.pass_s * t.passes,
    }


def decode_s(work: Work[FloatArray], t: Tuned[FloatArray]) -> FloatArray:
    """Seconds of a decode step."""
    floor = t.step_s + work.launches * t.kernel_s + work.tokens * t.token_s
    return np.asarray(sum(components(work, t).values()) + floor)


def prefill_s(work: Work[FloatArray], t: Tuned[FloatArray]) -> FloatArray:
    """Seconds of a prefill step."""
    return _corner(np.asarray(sum(components(work, t).values())), work.launches * t.launch_s)


@dataclass(frozen=True, slots=True)
class Cases:
    """What is asked, one element a case.

    Attributes:
        decode: A decode step of the running sessions of one rank.
        verify: The same where each sequence checks ``DRAFTED`` draft tokens besides; equal to ``decode`` without.
        prefill: One chunk of one prompt.
        chunks: Chunks of a prompt.
        sessions: That keep asking.
        running: Of which fit.
        ranks: Data-parallel ranks that share them.
        stages: Pipeline stages; a prefill occupies each for its part.
        output: Tokens of an answer.
        drafting: 1 where the model's own head drafts, else 0.
        draft_share: Work of one draft token in that of a step.
    """

    decode: Work[FloatArray]
    verify: Work[FloatArray]
    prefill: Work[FloatArray]
    chunks: FloatArray
    sessions: FloatArray
    running: FloatArray
    ranks: FloatArray
    stages: FloatArray
    output: FloatArray
    drafting: FloatArray
    draft_share: FloatArray


@dataclass(frozen=True, slots=True)
class Times:
    """Means in seconds, one element a case.

    Attributes:
        tpot_s: Time per output token.
        ttft_s: Time to first token, from send to first visible delta.
        step_s: A decode step without interference, divided by the tokens it yields.
        prefill_s: All chunks of one prompt.
        chunk_s: One chunk.
        service_s: The part of TTFT that one session alone would see.
        queue_s: The part spent behind other prompts.
        slot_s: The part spent waiting for room in the cache.
        busy: Share of time spent on prefill.
    """

    tpot_s: FloatArray
    ttft_s: FloatArray
    step_s: FloatArray
    prefill_s: FloatArray
    chunk_s: FloatArray
    service_s: FloatArray
    queue_s: FloatArray
    slot_s: FloatArray
    busy: FloatArray


def times(cases: Cases, t: Tuned[FloatArray]) -> Times:
    """What sessions see."""
    plain = decode_s(cases.decode, t)
    drafted = decode_s(cases.verify, t) * (1 + DRAFTED * cases.draft_share) / t.drafted
    step = np.where(cases.drafting > 0, drafted, plain)
    chunk = prefill_s(cases.prefill, t)
    prompt = chunk * cases.chunks
    each = cases.running / cases.ranks
    held = t.interference * each * prompt / cases.stages
    tpot = step + held / cases.output
    busy = np.clip(held / cases.output / tpot, 0, _BUSIEST)
    alone = t.host_s + prompt + np.where(cases.ranks > 1, t.data_parallel * prompt, 0.0)
    for _ in range(_ROUNDS):
        behind = t.burst * np.maximum(each - 1, 0) * (1 - busy) ** t.burst_decay
        behind = (behind + t.queue * np.minimum(busy / (1 - busy), each)) * prompt
        service = alone + t.visible * tpot
        lasts = cases.output + (service + behind) / tpot
        tpot = step + held / lasts
        busy = np.clip(held / lasts / tpot, 0, _BUSIEST)
    slot = np.maximum(cases.sessions / cases.running - 1, 0) * (cases.output * tpot + service + behind)
    return Times(tpot, service + behind + slot, step, prompt, chunk, service, behind, slot, busy)
