"""``vllm bench serve --save-result --save-detailed``: one JSON object with a column a figure.

As vLLM 0.32.0 writes it, and read from the source of 0.27 (``start_times`` is there) and later (``latencies`` since
0.30). Times are seconds of one monotonic clock; entry ``i`` of every column is request ``i``, failed ones included.
"""

import itertools
from typing import Any

import msgspec

from setpoint.errors import UsageError
from setpoint.experiments.imports.imported import (
    NO_CERTIFICATE,
    NO_FINISH,
    NO_PINS,
    Imported,
    Seen,
    exchange_of,
    outcome_of,
    same_length,
)
from setpoint.records.exchange import Outcome


class _Result(msgspec.Struct, kw_only=True):
    model_id: str
    input_lens: list[int]
    output_lens: list[int]
    ttfts: list[float]
    itls: list[list[float]]
    errors: list[str | None]
    start_times: list[float]
    latencies: list[float] | None = None
    backend: str | None = None
    date: str | None = None
    tokenizer_id: str | None = None
    request_rate: float | str | None = None
    burstiness: float | None = None
    max_concurrency: int | None = None


def read(content: bytes) -> list[Imported]:
    """The one run of a file.

    Raises:
        UsageError: it was written without ``--save-detailed``, or by a version without start times.
        msgspec.DecodeError: a field is missing or malformed; names it.
    """
    keys = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).keys()
    if "ttfts" not in keys:
        raise UsageError(
            "it holds aggregates only, from which no interval can be computed.",
            fix="Repeat the run with --save-result --save-detailed.",
        )
    if "start_times" not in keys:
        raise UsageError(
            "it has no start_times, so load and order are unknown.", fix="Repeat the run with a newer vLLM."
        )
    found = msgspec.json.decode(content, type=_Result)
    count = same_length(
        "the columns",
        input_lens=found.input_lens,
        output_lens=found.output_lens,
        ttfts=found.ttfts,
        itls=found.itls,
        errors=found.errors,
        start_times=found.start_times,
        **({} if found.latencies is None else {"latencies": found.latencies}),
    )
    origin = min(found.start_times, default=0.0)
    rows = [exchange_of(i, _seen(found, i, origin)) for i in range(count)]
    lacks = [
        "the planned send of each request: TTFT counts from the actual send, without any wait in the client",
        "who counted tokens: the server's usage or the tool's tokenizer",
        NO_FINISH,
        NO_CERTIFICATE,
        NO_PINS,
    ]
    if found.latencies is None:
        lacks.insert(0, "the end of each request: E2E ends with the last token")
    good = [i for i in range(count) if not found.errors[i]]
    without = sum(len(found.itls[i]) + 1 > found.output_lens[i] > 0 for i in good)
    if without:
        lacks.insert(
            0,
            f"which chunk held the first token: {without} of {len(good)} answers have more chunks than tokens, and "
            "TTFT ends with the first chunk, with text or without (a chat server's first usually has none)",
        )
    pins: dict[str, Any] = {"model": found.model_id, "dialect": found.backend, "tokenizer": found.tokenizer_id}
    load = f"{found.request_rate} requests/s, burstiness {found.burstiness}, at most {found.max_concurrency} at once"
    return [Imported(rows, pins, load, tuple(lacks))]


def _seen(found: _Result, i: int, origin: float) -> Seen:
    start, error = found.start_times[i] - origin, found.errors[i]
    if error:
        end = start + (found.latencies[i] if found.latencies is not None else 0.0)
        return Seen(
            start, start, max(end, start), None, None, None, (), found.input_lens[i], None, by_server=False,
            outcome=outcome_of(error), error="failed",
        )  # fmt: skip
    chunks = list(itertools.accumulate(found.itls[i], initial=start + found.ttfts[i]))
    last = chunks[-1]
    end = last if found.latencies is None else max(start + found.latencies[i], last)
    return Seen(
        start, start, end, chunks[0], chunks[0], last, chunks, found.input_lens[i], found.output_lens[i],
        by_server=False, outcome=Outcome.COMPLETE,
    )  # fmt: skip
