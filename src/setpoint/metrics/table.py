"""Exchanges as columns: what every definition is computed from.

One row an exchange, in order of schedule. Times that were never reached are NaN, counts that the server did not give
are NaN: unknown is not zero.

The gaps between visible chunks of all exchanges are one flat array, by far the largest: a million answers of 64 chunks
have a quarter of a gigabyte of them. So it is never reordered or copied when rows are; each row knows where its gaps
lie, and parts of a table share one array.

    rows     0             1     2 (no gaps)   3
    gap_at   5             0     3             3
    gaps     4             3     0             2
    gap_s    [ 1  1  1 | 3  3 | 0  0  0  0 ]
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from setpoint.errors import RecordError
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.parquet import BATCH_ROWS, EXCHANGE_SCHEMA, empty_frame, frames_of
from setpoint.records.record import RunRecord

Floats: TypeAlias = npt.NDArray[np.float64]
Gaps: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

OUTCOMES: Final = tuple(Outcome)
_ANSWERED = [code for code, outcome in enumerate(OUTCOMES) if outcome.answered]
_CANCELLED = OUTCOMES.index(Outcome.CANCELLED)
_TIMES = (
    "scheduled_s", "started_s", "sent_s", "first_token_s", "first_visible_s", "last_token_s", "done_s",
)  # fmt: skip
_COUNTS = ("planned_prompt_tokens", "planned_output_tokens")
_REPORTED = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
COLUMNS: Final = (
    "index", "session", "turn", "warmup", "outcome", "tokens_source",
    "chunk_s", "chunk_tokens", "chunk_kinds", *_TIMES, *_COUNTS, *_REPORTED,
)  # fmt: skip
_BLOCK_ROWS = 16_384  # reducing in blocks: numpy casts what it reduces


@dataclass(frozen=True, slots=True)
class ExchangeTable:
    """All exchanges of one run (or of a part of it).

    Every array has one entry an exchange, but for ``gap_s``. Build it with a ``from_`` method.

    Attributes:
        index: Position in the schedule.
        session: Index of the session.
        turn: Position in the session.
        warmup: Not part of the measurement.
        outcome: Position in ``OUTCOMES``.
        scheduled_s: As in ``Exchange``; so are the other times. NaN: never reached.
        planned_prompt_tokens: As planned.
        planned_output_tokens: As planned.
        prompt_tokens: As the server counted; NaN: it did not say. So are the next three.
        output_tokens: Completion tokens by the server's count, else the sum over the chunks.
        counted_by_server: Whether ``output_tokens`` is the server's count.
        chunks: Number of chunks of any kind.
        gaps: Number of gaps between consecutive visible chunks.
        gap_at: The gaps of exchange ``i`` are ``gap_s[gap_at[i] : gap_at[i] + gaps[i]]``.
        gap_s: All gaps in seconds, flat, those of rows that were left out included; single precision (a nanosecond
            at 10 ms).
    """

    index: Ints
    session: Ints
    turn: Ints
    warmup: Mask
    outcome: npt.NDArray[np.int8]
    scheduled_s: Floats
    started_s: Floats
    sent_s: Floats
    first_token_s: Floats
    first_visible_s: Floats
    last_token_s: Floats
    done_s: Floats
    planned_prompt_tokens: Ints
    planned_output_tokens: Ints
    prompt_tokens: Floats
    completion_tokens: Floats
    cached_tokens: Floats
    reasoning_tokens: Floats
    output_tokens: Floats
    counted_by_server: Mask
    chunks: Ints
    gaps: Ints
    gap_at: Ints
    gap_s: Gaps

    @classmethod
    def from_frame(cls, frame: pl.DataFrame) -> "ExchangeTable":
        """From a frame with the columns of ``exchanges.parquet`` (see ``COLUMNS``).

        Raises:
            RecordError: A column is missing, an outcome is unknown, or times run backwards.
        """
        return cls.from_frames([frame])

    @classmethod
    def from_exchanges(cls, rows: Iterable[Exchange]) -> "ExchangeTable":
        """From exchanges as they were observed, in any order.

        Raises:
            RecordError: Times run backwards.
        """
        return cls.from_frames(frames_of(rows, EXCHANGE_SCHEMA, BATCH_ROWS))

    @classmethod
    def from_record(cls, record: RunRecord) -> "ExchangeTable":
        """From a run, in batches: the text of the chunks' times is in memory for one batch only.

        Raises:
            RecordError: The record cannot be read, or holds times that run backwards.
        """
        return cls.from_frames(record.iter_frames(columns=list(COLUMNS)))

    @classmethod
    def from_frames(cls, frames: Iterable[pl.DataFrame]) -> "ExchangeTable":
        """From frames in any order; rows are sorted by ``(scheduled_s, index)``.

        Raises:
            RecordError: As in ``from_frame``.
        """
        parts = []
        gap_bytes = bytearray()  # grows in place, where joining arrays would need the room twice
        for frame in chain([empty_frame(EXCHANGE_SCHEMA)], frames):
            part = _part(frame)
            gap_bytes += part.pop("gap_s").tobytes()
            parts.append(part)
        names = [f.name for f in fields(cls) if f.name not in ("gap_at", "gap_s")]
        columns: dict[str, Any] = {name: np.concatenate([p.pop(name) for p in parts]) for name in names}
        columns["gap_s"] = np.frombuffer(gap_bytes, dtype=np.float32)
        columns["gap_at"] = np.cumsum(columns["gaps"]) - columns["gaps"]
        order = np.lexsort((columns["index"], columns["scheduled_s"]))
        for name in (*names, "gap_at"):  # one column at a time: all of them twice would be the peak of a whole run
            columns[name] = columns[name][order]
        table = cls(**columns)
        _refuse_times_that_run_backwards(table)
        return table

    def __len__(self) -> int:
        return len(self.index)

    @property
    def answered(self) -> Mask:
        """Exchanges whose user got an answer (outcome ``complete`` or ``length``)."""
        return np.isin(self.outcome, _ANSWERED)

    @property
    def cancelled(self) -> Mask:
        """Exchanges that the client itself ended."""
        return np.isin(self.outcome, [_CANCELLED])

    @property
    def failed(self) -> Mask:
        """Exchanges that the target did not answer."""
        return ~self.answered & ~self.cancelled

    @property
    def measured(self) -> "ExchangeTable":
        """Without the warm-up."""
        return self.select(~self.warmup) if self.warmup.any() else self

    def select(self, mask: Mask) -> "ExchangeTable":
        """The exchanges where ``mask`` is true, in the same order."""
        return self._take(np.flatnonzero(mask))

    def tasks(self) -> "ExchangeTable":
        """One row a session: a task from its first turn's planned send to the end of its last.

        A task is answered when each of its turns was; otherwise it ended as the first turn that was not. Tokens are
        those of all turns; the gaps stay with the first.
        """
        if not len(self):
            return self
        order = np.lexsort((self.turn, self.session))
        starts = np.flatnonzero(np.concatenate([[True], np.diff(self.session[order]) != 0]))
        ends = np.concatenate([starts[1:], [len(order)]]) - 1
        unanswered = np.where(self.answered[order], len(order), np.arange(len(order)))
        decisive = np.minimum(np.minimum.reduceat(unanswered, starts), ends)
        first = order[starts]
        by_time = np.lexsort((self.index[first], self.scheduled_s[first]))
        return replace(
            self._take(first[by_time]),
            outcome=self.outcome[order[decisive]][by_time],
            done_s=np.maximum.reduceat(self.done_s[order], starts)[by_time],
            last_token_s=self.last_token_s[order[ends]][by_time],
            output_tokens=np.add.reduceat(self.output_tokens[order], starts)[by_time],
        )

    def gaps_at_most(self, limit_s: float) -> Ints:
        """How many of each exchange's gaps are no longer than a limit."""
        limit = np.float32(limit_s)
        return self._reduce(np.add, lambda part: self.gap_s[part] <= limit, np.int64).astype(np.int64)

    def longest_gap(self) -> Floats:
        """The longest gap of each exchange; NaN without one."""
        longest: Floats = self._reduce(np.maximum, lambda part: self.gap_s[part], np.float32).astype(np.float64)
        longest[self.gaps == 0] = np.nan
        return longest

    def gaps_in(self, rows: Mask) -> Gaps:
        """The gaps of these exchanges as a new array; without a mask as large as the gaps where all are wanted."""
        if int(self.gaps[rows].sum()) == len(self.gap_s):
            return self.gap_s.copy()
        return self.gap_s[self.gaps_of(rows)]

    def gaps_of(self, rows: Mask) -> Mask:
        """Which entries of ``gap_s`` belong to the rows where ``rows`` is true."""
        some = rows & (self.gaps > 0)
        edges = np.zeros(len(self.gap_s) + 1, dtype=np.int8)
        np.add.at(edges, self.gap_at[some], 1)
        np.add.at(edges, self.gap_at[some] + self.gaps[some], -1)
        return np.cumsum(edges[:-1], dtype=np.int8, out=edges[:-1]).view(np.bool_)

    def _reduce(
        self, how: np.ufunc, values: Callable[[slice], npt.NDArray[Any]], kind: type[np.generic]
    ) -> npt.NDArray[Any]:
        """Reduce the entries that belong to each exchange; 0 where it has none. ``values`` gives those of a part."""
        reduced = np.zeros(len(self), dtype=kind)
        some = np.flatnonzero(self.gaps)
        some = some[np.argsort(self.gap_at[some])]
        for rows in np.split(some, range(_BLOCK_ROWS, len(some), _BLOCK_ROWS)) if len(some) else ():
            first, end = self.gap_at[rows], self.gap_at[rows] + self.gaps[rows]
            # Pairs (first, end): every second segment is an exchange, the others lie between exchanges.
            edges = np.stack([first, end], axis=1).ravel()[:-1] - first[0]
            reduced[rows] = how.reduceat(values(slice(first[0], end[-1])), edges, dtype=kind)[::2]
        return reduced

    def outcomes(self) -> dict[str, int]:
        """Number of exchanges by outcome; outcomes that did not occur are left out."""
        counts = np.bincount(self.outcome, minlength=len(OUTCOMES))
        return {o.value: int(c) for o, c in zip(OUTCOMES, counts, strict=True) if c}

    def _take(self, rows: Ints) -> "ExchangeTable":
        columns: dict[str, Any] = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "gap_s"}
        return ExchangeTable(**columns, gap_s=self.gap_s)


def _refuse_times_that_run_backwards(table: ExchangeTable) -> None:
    """A latency below zero is a defect of the clock or the record, never a number to print."""
    checked = ~table.cancelled
    for earlier, later in (
        ("scheduled_s", "done_s"),
        ("started_s", "sent_s"),
        ("started_s", "first_token_s"),
        ("scheduled_s", "first_token_s"),
        ("first_token_s", "first_visible_s"),
        ("first_token_s", "last_token_s"),
        ("last_token_s", "done_s"),
    ):
        a, b = getattr(table, earlier), getattr(table, later)
        wrong = np.flatnonzero(checked & (b < a))
        if len(wrong):
            row = int(wrong[0])
            raise RecordError(
                f"exchange {table.index[row]}: {later} {b[row]:.6f} is before {earlier} {a[row]:.6f}"
                f" ({len(wrong)} such exchanges); the record does not come from one monotonic clock.",
                fix="Measure again; no figure can be computed from this record.",
            )
    backwards = np.flatnonzero(table.gap_s < 0)
    if len(backwards):
        row = int(np.flatnonzero((table.gap_at <= backwards[0]) & (backwards[0] < table.gap_at + table.gaps))[0])
        raise RecordError(
            f"exchange {table.index[row]}: a chunk arrived before the one that precedes it"
            f" ({len(backwards)} such gaps).",
            fix="Measure again; no figure can be computed from this record.",
        )


def _part(frame: pl.DataFrame) -> dict[str, Any]:
    """Columns of one frame as arrays, with ``gap_s`` flat and ``gaps`` a count per exchange."""
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise RecordError(f"exchanges without the columns {', '.join(missing)}.", fix="Read them with RunRecord.")
    floats = {name: _floats(frame[name]) for name in (*_TIMES, *_REPORTED)}
    chunk_tokens = frame["chunk_tokens"].list.sum().fill_null(0).to_numpy().astype(np.float64)
    by_server = (frame["tokens_source"] == "usage").to_numpy() & ~np.isnan(floats["completion_tokens"])
    gap_s, gaps, chunks = _visible_gaps(frame)
    return {
        "index": _ints(frame["index"]),
        "session": _ints(frame["session"]),
        "turn": _ints(frame["turn"]),
        "warmup": frame["warmup"].to_numpy().astype(np.bool_),
        "outcome": _outcomes(frame["outcome"]),
        **floats,
        **{name: _ints(frame[name]) for name in _COUNTS},
        "output_tokens": np.where(by_server, floats["completion_tokens"], chunk_tokens),
        "counted_by_server": by_server,
        "chunks": chunks,
        "gap_s": gap_s,
        "gaps": gaps,
    }


def _visible_gaps(frame: pl.DataFrame) -> tuple[Gaps, Ints, Ints]:
    """Gaps between consecutive visible chunks, their number per exchange, and the number of chunks."""
    chunks = _ints(frame["chunk_s"].list.len())
    kinds = frame["chunk_kinds"]
    if not np.array_equal(_ints(kinds.str.len_bytes()), chunks):
        raise RecordError("chunk_kinds and chunk_s differ in length.", fix="Measure again.")
    times = frame["chunk_s"].explode(empty_as_null=False).to_numpy().astype(np.float64)
    letters = np.frombuffer("".join(kinds.to_list()).encode(), dtype=np.uint8)
    visible = letters != ord("r")
    owner = np.repeat(np.arange(len(chunks)), chunks)[visible]
    same = owner[1:] == owner[:-1]
    gap_s = np.diff(times[visible])[same].astype(np.float32)
    return gap_s, np.bincount(owner[1:][same], minlength=len(chunks)).astype(np.int64), chunks


def _outcomes(column: pl.Series) -> npt.NDArray[np.int8]:
    codes = column.replace_strict([o.value for o in OUTCOMES], range(len(OUTCOMES)), default=-1, return_dtype=pl.Int8)
    found = codes.to_numpy()
    if (found < 0).any():
        raise RecordError(
            f"unknown outcome {column.to_list()[int(np.argmin(found))]!r}.", fix="Upgrade setpoint to read this run."
        )
    return found.astype(np.int8)


def _floats(column: pl.Series) -> Floats:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64)


def _ints(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int64)
