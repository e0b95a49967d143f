"""What parent and worker processes say to each other: length-prefixed msgpack over pipes.

Parent to worker: one ``Job``, then at most a few ``Command``. Worker to parent: ``Tick`` about four times a second,
the last one marked ``final``.
"""

import operator
import struct
from collections.abc import Iterator
from enum import StrEnum
from typing import TypeVar

import msgspec

from setpoint.client.limits import PhaseTimeouts
from setpoint.protocol.requests import Asked
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.target import Target
from setpoint.workload.prompts import Vocabulary
from setpoint.workload.schedule import Session

_LENGTH = struct.Struct("<I")
Kind = TypeVar("Kind")


class Stop(StrEnum):
    """How a worker is asked to end."""

    DRAIN = "drain"  # start nothing more, wait for answers
    NOW = "now"  # end exchanges under way as cancelled


class Command(msgspec.Struct, frozen=True):
    """A request of the parent while a run is under way."""

    stop: Stop


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """All that one worker needs.

    Attributes:
        worker: Its number, from 0; also its journal's.
        journal: Path of its journal, made by itself.
        target: Where to send, its key included: the pipe is private.
        asked: What is the same in every request.
        sessions: Its share of the schedule, in order of start.
        first_index: Schedule index of the first turn of each session, aligned with ``sessions``.
        whole_tasks: Sessions are tasks: one that has begun goes on after ``stop_starting_s``.
        users: Its share of users in closed loop; None in open loop.
        origin_s: Time zero of the run on the monotonic clock.
        stop_starting_s: No session starts after this, seconds since the origin.
        end_s: Everything still under way is cancelled at this time.
        timeouts: Phase limits.
        vocabulary: Words for prompts.
        seed: Seed of the prompts.
        nonce: Makes prompts of this run unlike any other's.
    """

    worker: int
    journal: str
    target: Target
    asked: Asked
    sessions: list[Session]
    first_index: list[int]
    whole_tasks: bool
    users: int | None
    origin_s: float
    stop_starting_s: float
    end_s: float
    timeouts: PhaseTimeouts
    vocabulary: Vocabulary
    seed: int
    nonce: str


class Brief(msgspec.Struct, frozen=True, array_like=True):
    """What the parent learns of each finished exchange while the run is under way; rows are in the journal.

    Times in seconds; ``scheduled_s`` and ``done_s`` since the origin, the others durations.
    """

    index: int
    session: int
    scheduled_s: float
    done_s: float
    lag_s: float
    outcome: Outcome
    ttft_s: float | None
    tpot_s: float | None
    longest_gap_s: float | None
    tokens: int

    @classmethod
    def of(cls, row: Exchange) -> "Brief":
        """The brief of a finished row."""
        visible, first, last = row.first_visible_s, row.first_token_s, row.last_token_s
        tokens = row.completion_tokens if row.completion_tokens is not None else len(row.chunk_s)
        tpot = None
        if first is not None and last is not None and tokens > 1:
            tpot = (last - first) / (tokens - 1)
        chunks = row.chunk_s
        gap = max(map(operator.sub, chunks[1:], chunks), default=None)
        return cls(
            row.index,
            row.session,
            row.scheduled_s,
            row.done_s,
            row.started_s - row.scheduled_s,
            row.outcome,
            None if visible is None else visible - row.scheduled_s,
            tpot,
            gap,
            tokens,
        )


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's state.

    Attributes:
        worker: Its number.
        time_s: Since the origin.
        started: Requests begun so far.
        in_flight: Exchanges under way.
        cpu_s: CPU seconds used since the job began.
        stall_s: Longest time that the event loop did not turn, since the last tick.
        done: Exchanges finished since the last tick.
        failure: Why the worker cannot go on (its record cannot be written); None while it can.
        final: Nothing more will come.
    """

    worker: int
    time_s: float
    started: int
    in_flight: int
    cpu_s: float
    stall_s: float
    done: list[Brief]
    failure: str | None = None
    final: bool = False


def frame(message: object) -> bytes:
    """A message with its length."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Takes bytes as they come from a pipe and gives whole message bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Bodies completed by these bytes."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield body
