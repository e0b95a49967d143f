"""Exchanges for the tests of records."""

from setpoint.records.exchange import Exchange, Outcome


def exchange(index: int, *, chunks: int = 4, at: float | None = None, outcome: Outcome = Outcome.COMPLETE) -> Exchange:
    """A plausible streamed answer: 100 ms to the first chunk, 10 ms between chunks."""
    start = index * 0.5 if at is None else at
    times = [start + 0.1 + 0.01 * i for i in range(chunks)]
    return Exchange(
        index=index,
        session=index,
        turn=0,
        warmup=False,
        worker=0,
        scheduled_s=start,
        started_s=start + 0.0001,
        connected_s=start + 0.0002,
        sent_s=start + 0.0003,
        headers_s=start + 0.09,
        first_token_s=times[0] if times else None,
        first_visible_s=times[0] if times else None,
        last_token_s=times[-1] if times else None,
        done_s=(times[-1] if times else start + 0.1) + 0.001,
        chunk_s=times,
        chunk_tokens=[1] * chunks,
        chunk_kinds="c" * chunks,
        outcome=outcome,
        status=200,
        finish_reason="stop",
        error=None,
        retry_after_s=None,
        planned_prompt_tokens=32,
        planned_output_tokens=chunks,
        prompt_tokens=33,
        completion_tokens=chunks,
        cached_tokens=None,
        reasoning_tokens=None,
        tokens_source="usage",
        visible_chars=4 * chunks,
        reasoning_chars=0,
        tool_calls=0,
    )
