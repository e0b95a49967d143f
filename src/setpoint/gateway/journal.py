"""What a worker process writes of each exchange: one line when it is dispatched, one when it has ended.

Lines are written into a mapped file: they stand in the kernel's memory at once, so that they survive the process. What
is not written yet is zeros, and a line has none: a reader can tell a line that it sees in part. The ledger makes usage,
metrics and the access log of these lines, each exactly once. There is no text in them.
"""

import contextlib
import mmap
import os
import time
from pathlib import Path

import msgspec

MAX_BYTES = 64 * 2**20
WINDOW_BYTES = 256 * 2**10  # mapped at a time
ITL_BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="opened"):
    """An exchange was sent to an engine."""

    id: str
    time: float
    tenant: str
    key: str | None
    model: str
    replica: str
    dialect: str
    prompt_tokens: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="ended", omit_defaults=True):
    """An exchange has ended.

    Attributes:
        id: Of the exchange; stands in the answer's ``x-request-id``.
        time: Unix time of its arrival.
        tenant: Whose; empty where the credentials were not accepted.
        key: Public part of the key.
        subject: Keyed hash of a token's ``sub``.
        model: Model that served it, or that was asked for where it exists.
        replica: Engine of the last attempt.
        dialect: Wire dialect.
        priority: Class.
        stream: Whether a stream was asked for.
        status: HTTP status as the client must understand the end: 502 for a stream that was cut.
        sent_status: HTTP status on the wire.
        outcome: As the design defines it.
        reason: Short word or sentence without content.
        prompt_tokens: Counted by the engine, else estimated.
        completion_tokens: Counted by the engine, else deltas.
        cached_tokens: Prompt tokens from the engine's cache; None when it does not say.
        predicted_tokens: What the router expected of it.
        estimated: Whether the engine did not count.
        queue_s: Waiting for a replica.
        ttft_s: From arrival to the first visible delta.
        latency_s: From arrival to end.
        stall_s: Longest gap between visible deltas.
        itl: Gaps between visible deltas, counted by ``ITL_BOUNDS_S`` and beyond.
        itl_sum_s: Their sum.
        attempts: Engines tried.
        prefix_blocks: Hashes of the prompt's blocks; keyed once they reach the access log.
        block_tokens: What one stands for.
        finish_reason: As the engine gave it.
        tool_calls: In the answer.
        config: Digest of the configuration in force.
        trace: The client's W3C ``traceparent``.
    """

    id: str
    time: float
    tenant: str
    key: str | None = None
    subject: str | None = None
    model: str = ""
    replica: str = ""
    dialect: str = ""
    priority: str = ""
    stream: bool = False
    status: int
    sent_status: int
    outcome: str
    reason: str | None = None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    predicted_tokens: int | None = None
    estimated: bool = False
    queue_s: float = 0.0
    ttft_s: float | None = None
    latency_s: float
    stall_s: float | None = None
    itl: list[int] | None = None
    itl_sum_s: float = 0.0
    attempts: int = 0
    prefix_blocks: list[int] | None = None
    block_tokens: int | None = None
    finish_reason: str | None = None
    tool_calls: int = 0
    config: str = ""
    trace: str | None = None


Line = Opened | Ended
_decoder = msgspec.json.Decoder(Line)
read_line, read_lines = _decoder.decode, _decoder.decode_lines
_encode = msgspec.json.Encoder().encode


def written(data: bytes) -> bytes:
    """The whole lines in bytes of a file that a process writes."""
    end = data.find(0)
    return data[: data.rfind(b"\n", 0, end if end >= 0 else len(data)) + 1]


class Journal:
    """Appends lines; begins a new file when one is large.

    Args:
        folder: Where the files are.
        worker: Number of the worker process, part of the names.

    Raises:
        OSError: there is no place for the first lines.
    """

    def __init__(self, folder: Path, worker: int) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._worker = worker
        self._fd = -1
        self._window: mmap.mmap | None = None
        self._begins = self._at = self._room = 0  # of the window: its offset in the file, what is written, its size
        self._touched = -1  # page of the file that is in memory, and those before it
        self._next()

    def _next(self) -> None:
        self.close()
        path = self._folder / f"{time.time_ns():020d}-{self._worker}-{os.getpid()}.jsonl"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._map(WINDOW_BYTES)

    def _map(self, size: int) -> None:
        """Maps what follows; the disk's blocks are taken now, since later their lack would kill the process."""
        end = self._begins + self._at
        begins = end - end % mmap.PAGESIZE
        size += -size % mmap.PAGESIZE
        os.posix_fallocate(self._fd, begins, size)
        window = mmap.mmap(self._fd, size, offset=begins)
        if self._window is not None:
            self._window.close()
        self._window, self._begins, self._at, self._room = window, begins, end - begins, size

    def write(self, line: Line) -> None:
        """Writes one line.

        Raises:
            OSError: there is no place for it.
        """
        data = _encode(line) + b"\n"
        end = self._at + len(data)
        if end > self._room:
            self._map(max(WINDOW_BYTES, mmap.PAGESIZE + len(data)))
            end = self._at + len(data)
        assert self._window is not None
        self._window[self._at : end] = data
        self._at = end
        if self._begins + end > MAX_BYTES:
            self._next()
        if line.__class__ is Ended:  # its client has all: what the next line needs is got while nobody waits for it
            self._reach_ahead()

    def _reach_ahead(self) -> None:
        """Has the page after this one in memory, so that a line that is written before a dispatch waits for none."""
        if self._room - self._at < 2 * mmap.PAGESIZE:
            with contextlib.suppress(OSError):  # no place: the line that needs it says so
                self._map(WINDOW_BYTES)
        ahead = self._at + mmap.PAGESIZE
        page = (self._begins + ahead) // mmap.PAGESIZE
        if page != self._touched and ahead < self._room:
            assert self._window is not None
            self._window[self._at] = self._window[ahead] = 0
            self._touched = page

    def close(self) -> None:
        """Ends the current file, at its last line."""
        if self._window is not None:
            self._window.close()
            self._window = None
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._begins + self._at)
            os.close(self._fd)
            self._fd = -1
        self._begins = self._at = self._room = 0
