"""Memory that the worker processes share: one row a replica, tenant, key or worker, one column block a worker.

What a worker holds (requests under way, reserved tokens) stands in its own column block, so that reading a total is a
sum, and what a killed worker held is given back by clearing its block. Levels that all share stand in common cells and
are changed under the lock, which the kernel releases if its holder dies.
"""

import fcntl
import mmap
import os
import threading
from hashlib import blake2b
from pathlib import Path

from setpoint.errors import SetpointError

ROWS = 4096
NAME_CELLS = 2
COMMON_CELLS = 8
WORKER_CELLS = 4
MAX_WORKERS = 64
_CELL = 8


class TableFullError(SetpointError):
    """No row is left for a new name."""


class SharedTable:
    """A file of 64-bit signed integers, mapped by every process of one gateway.

    Args:
        path: The file; created when absent, kept when it has the right size.
        workers: Column blocks.
        worker: The block that this process writes; -1 for one that only reads.

    Raises:
        SetpointError: the file cannot be mapped.
    """

    def __init__(self, path: Path, workers: int, worker: int) -> None:
        self.workers, self.worker = workers, worker
        self._width = NAME_CELLS + COMMON_CELLS + workers * WORKER_CELLS
        size = ROWS * self._width * _CELL
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            if os.fstat(self._fd).st_size != size:
                os.ftruncate(self._fd, 0)
                os.ftruncate(self._fd, size)
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            raise SetpointError(
                f"The shared state {path} cannot be used: {(error.strerror or 'no').lower()}."
            ) from None
        self.cells = memoryview(self._map).cast("q")
        self._names = _Lock(self._fd)
        self._lock = _Lock(self._fd) if workers > 1 else threading.Lock()
        self._rows: dict[str, Row] = {}

    def locked(self) -> "_Lock | threading.Lock":
        """Excludes the other worker processes, where there are any; held for microseconds, never across an await."""
        return self._lock

    def row(self, name: str, kept: int = 0) -> "Row":
        """The row of a name, the same in every process; given out on first use.

        Args:
            name: Whose.
            kept: Rows at the end that a new name does not get.

        Raises:
            TableFullError: no row is left.
        """
        known = self._rows.get(name)
        if known is None:
            digest = blake2b(name.encode(), digest_size=16).digest()
            mark = tuple(int.from_bytes(digest[i : i + 8], "little", signed=True) or 1 for i in (0, 8))
            with self._names:
                known = self._rows[name] = Row(self, self._find(mark, kept))
        return known

    def _find(self, mark: tuple[int, ...], kept: int) -> int:
        for number in range(ROWS - kept):
            start = number * self._width
            found = (self.cells[start], self.cells[start + 1])
            if found == mark:
                return start + NAME_CELLS
            if found == (0, 0):
                self.cells[start], self.cells[start + 1] = mark
                return start + NAME_CELLS
        raise TableFullError(
            f"More than {ROWS - kept:,} replicas, tenants and keys are in use.", fix="Declare fewer tenants."
        )

    def clear_worker(self, worker: int) -> None:
        """Gives back all that a worker held: it has ended."""
        with self._names:
            for number in range(ROWS):
                start = number * self._width + NAME_CELLS + COMMON_CELLS + worker * WORKER_CELLS
                self.cells[start : start + WORKER_CELLS] = _NOTHING

    def close(self) -> None:
        """Unmaps; the object is of no further use."""
        self.cells.release()
        self._map.close()
        os.close(self._fd)


class _Lock:
    """A lock on a file, taken several times a request."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN)


_NOTHING = memoryview(bytearray(WORKER_CELLS * _CELL)).cast("q")


class Row:
    """Cells of one name.

    ``row[i]`` and ``row[i] = v`` are common cells; ``hold(i, amount)`` changes this worker's own cell, ``held(i)`` sums
    the cell over the workers.

    Attributes:
        cells: The whole table's, for whoever changes several at once: ``cells[start + i]`` is a common cell.
        start: Of the common cells.
        mine: Of this worker's own ones.
    """

    __slots__ = ("_alone", "_stop", "cells", "mine", "start")

    def __init__(self, table: SharedTable, start: int) -> None:
        self.cells = table.cells
        self.start = start
        self._stop = start + COMMON_CELLS + table.workers * WORKER_CELLS
        self.mine = start + COMMON_CELLS + table.worker * WORKER_CELLS
        self._alone = table.workers == 1

    def __getitem__(self, cell: int) -> int:
        return self.cells[self.start + cell]

    def __setitem__(self, cell: int, value: int) -> None:
        self.cells[self.start + cell] = value

    def common(self) -> list[int]:
        """All common cells as they are at one moment."""
        return self.cells[self.start : self.start + COMMON_CELLS].tolist()

    def levels(self) -> list[int]:
        """The common cells, and behind them the workers' own ones, each summed over all workers."""
        if self._alone:
            return self.cells[self.start : self._stop].tolist()
        return self.common() + [self.held(cell) for cell in range(WORKER_CELLS)]

    def hold(self, cell: int, amount: int) -> None:
        """Adds to this worker's own cell."""
        self.cells[self.mine + cell] += amount

    def held(self, cell: int) -> int:
        """The sum over all workers."""
        if self._alone:
            return self.cells[self.start + COMMON_CELLS + cell]
        return sum(self.cells[self.start + COMMON_CELLS + cell : self._stop : WORKER_CELLS])
