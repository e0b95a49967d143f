"""Exchanges and promises for the tests of metrics."""

from dataclasses import dataclass

from setpoint.records.exchange import Exchange, Outcome


@dataclass(frozen=True, slots=True)
class Promise:
    """What metrics needs to know of a promise."""

    metric: str
    quantile: float | None = None
    limit_s: float | None = None
    at_least: float | None = None
    boundary: str | None = None
    label: str = "promise"


def ttft(quantile: float, limit_s: float, boundary: str = "scheduled") -> Promise:
    return Promise("ttft", quantile, limit_s, boundary=boundary, label=f"p{quantile * 100:g} TTFT")


def itl(quantile: float, limit_s: float) -> Promise:
    return Promise("itl", quantile, limit_s, label=f"p{quantile * 100:g} ITL")


def e2e(quantile: float, limit_s: float) -> Promise:
    return Promise("e2e", quantile, limit_s, label=f"p{quantile * 100:g} E2E")


def answered(at_least: float) -> Promise:
    return Promise("answered", at_least=at_least, label="answered")


def exchange(
    index: int,
    *,
    at: float | None = None,
    ttft_s: float = 0.1,
    gaps_s: tuple[float, ...] = (0.01, 0.01, 0.01),
    tokens: tuple[int, ...] | None = None,
    kinds: str | None = None,
    outcome: Outcome = Outcome.COMPLETE,
    session: int | None = None,
    turn: int = 0,
    warmup: bool = False,
    lag_s: float = 0.0,
    done_after_s: float = 0.0,
    planned_output_tokens: int = 4,
    completion_tokens: int | None = None,
) -> Exchange:
    """One exchange: its first chunk ``ttft_s`` after its schedule, then one chunk after each gap.

    Outcomes without an answer get no chunks and end ``ttft_s`` after their schedule.
    """
    start = float(index) if at is None else at
    answer = outcome.answered or outcome in (Outcome.TRUNCATED, Outcome.CANCELLED)
    times = [start + ttft_s] if answer and gaps_s is not None else []
    for gap in gaps_s if times else ():
        times.append(times[-1] + gap)
    letters = kinds if kinds is not None and times else "c" * len(times)
    counts = list(tokens) if tokens is not None and times else [1] * len(times)
    visible = [t for t, k in zip(times, letters, strict=True) if k != "r"]
    return Exchange(
        index=index,
        session=index if session is None else session,
        turn=turn,
        warmup=warmup,
        worker=0,
        scheduled_s=start,
        started_s=start + lag_s,
        connected_s=start + lag_s,
        sent_s=start + lag_s,
        headers_s=times[0] if times else None,
        first_token_s=times[0] if times else None,
        first_visible_s=visible[0] if visible else None,
        last_token_s=times[-1] if times else None,
        done_s=(times[-1] if times else start + ttft_s) + done_after_s,
        chunk_s=times,
        chunk_tokens=counts,
        chunk_kinds=letters,
        outcome=outcome,
        status=200 if answer else 500,
        finish_reason="stop" if outcome.answered else None,
        error=None,
        retry_after_s=None,
        planned_prompt_tokens=32,
        planned_output_tokens=planned_output_tokens,
        prompt_tokens=32 if outcome.answered else None,
        completion_tokens=completion_tokens,
        cached_tokens=None,
        reasoning_tokens=None,
        tokens_source="chunks" if completion_tokens is None else "usage",
        visible_chars=4 * len(visible),
        reasoning_chars=0,
        tool_calls=0,
    )
