"""Requests that carry an ``Idempotency-Key``: while one is under way, and once it was answered, it is not done again.

Which keys are in use stands in memory that all workers map: keyed hashes and times, no text. An answer that is one
small document is kept in the memory of the worker that gave it, and said again; of any other (a stream, a large
document, one that another worker gave) only that it was given is known. An attempt that brought no whole answer frees
its key: the client may try again, and will. After the IETF draft draft-ietf-httpapi-idempotency-key-header: 409 while
one is under way, 422 where the same key comes with another request.
"""

import hmac
import mmap
import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from setpoint.errors import SetpointError
from setpoint.gateway.config import Idempotency as Rules
from setpoint.gateway.refusal import Refusal
from setpoint.gateway.shared import SharedTable

MAX_KEY_CHARS = 255
WAYS = 16
SETS = 4096  # with the ways 65,536 keys of one gateway, 2.5 MiB
# cells of an entry
_MARK, _TENANT, _REQUEST, _STATE, _UNTIL_MS = 0, 2, 3, 4, 5
_CELLS = 6
_CELL = 8
_FREE, _ANSWERED = 0, -1  # any other state is the worker, from 1, that has it under way


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer that can be said again.

    Attributes:
        kind: Content type.
        body: The document.
        until_s: How long it may be, Unix time.
    """

    kind: str
    body: bytes
    until_s: float


@dataclass(slots=True)
class Claim:
    """A key in use by one exchange. It ends by ``answered`` or ``release``; a second end changes nothing."""

    table: "IdempotencyKeys"
    mark: tuple[int, int]
    open: bool = True

    def answered(self, rules: Rules, answer: tuple[str, bytes] | None) -> None:
        """The request has its whole answer; it is not done again until the window has passed.

        Args:
            rules: For how long, and how much may be kept.
            answer: Content type and body of a document; None for a stream.
        """
        if self.open:
            self.open = False
            self.table.answered(self.mark, rules, answer)

    def release(self) -> None:
        """No whole answer came of it: the key is free again."""
        if self.open:
            self.open = False
            self.table.release(self.mark)


class IdempotencyKeys:
    """The keys in use, shared by the workers of one gateway.

    A set-associative table. In a full set the tenant's own oldest answered key gives way first, then the oldest of any,
    so that a tenant who sends many takes no other's place.

    Args:
        path: File that the workers map.
        table: Its lock excludes the other workers, and it knows which worker this is.
        secret: Keys the hashes.

    Raises:
        SetpointError: the file cannot be mapped.
    """

    def __init__(self, path: Path, table: SharedTable, secret: bytes) -> None:
        self._table, self._secret = table, secret
        self._kept: OrderedDict[tuple[int, int], Kept] = OrderedDict()
        self._kept_bytes = 0
        size = SETS * WAYS * _CELLS * _CELL
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if os.fstat(self._fd).st_size != size:
                os.ftruncate(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            raise SetpointError(f"The keys in {path} cannot be used: {(error.strerror or 'no').lower()}.") from None
        self._cells = memoryview(self._map).cast("q")
        mine = table.worker + 1
        with table.locked():  # what an earlier process in this worker's place had under way has ended with it
            for start in range(0, len(self._cells), _CELLS):
                if self._cells[start + _STATE] == mine:
                    self._free(start)

    def claim(self, tenant: str, key: str, request: bytes) -> Claim | Kept:
        """Takes a key for a request, or gives the answer that it had.

        Args:
            tenant: Keys of different tenants have nothing to do with each other.
            key: The header's value.
            request: What the key stands for: address and body.

        Raises:
            Refusal: 400 for a key that is none, 409 while or after one that cannot be said again, 422 for another
                request under the same key.
        """
        if not (0 < len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable()):
            raise Refusal(
                400, "invalid_request", f"The field idempotency-key takes 1 to {MAX_KEY_CHARS} printable characters."
            )
        owner, named = tenant.encode(), key.encode()
        whole = self._digest(len(owner).to_bytes(4, "big") + owner + named)
        mark = (_cell(whole[:8]), _cell(whole[8:16]))
        wanted = _cell(self._digest(request)[:8])
        who = _cell(self._digest(owner)[:8])
        now_ms = int(time.time() * 1000)
        with self._table.locked():
            start = self._find(mark)
            if start is not None and (self._cells[start + _STATE] > 0 or self._cells[start + _UNTIL_MS] > now_ms):
                return self._again(mark, start, wanted)
            if start is None:
                start = self._place(mark, who, now_ms)
            cells = self._cells
            cells[start], cells[start + 1] = mark
            cells[start + _TENANT], cells[start + _REQUEST] = who, wanted
            cells[start + _STATE], cells[start + _UNTIL_MS] = self._table.worker + 1, now_ms
        self._drop(mark)
        return Claim(self, mark)

    def _again(self, mark: tuple[int, int], start: int, wanted: int) -> Kept:
        """What a key that is in use is told."""
        if self._cells[start + _REQUEST] != wanted:
            raise Refusal(422, "idempotency_mismatch", "This idempotency key was used for another request.")
        if self._cells[start + _STATE] > 0:
            raise Refusal(
                409, "idempotency_in_flight", "A request with this idempotency key is under way.", retry_after_s=1
            )
        kept = self._kept.get(mark)
        if kept is None or kept.until_s < time.time():
            raise Refusal(
                409, "idempotency_answered", "The request with this idempotency key was answered; it is not done again."
            )
        return kept

    def answered(self, mark: tuple[int, int], rules: Rules, answer: tuple[str, bytes] | None) -> None:
        """See ``Claim.answered``."""
        until_s = time.time() + rules.window
        with self._table.locked():
            start = self._find(mark)
            if start is not None:
                self._cells[start + _STATE], self._cells[start + _UNTIL_MS] = _ANSWERED, int(until_s * 1000)
        if answer is not None and len(answer[1]) <= rules.max_answer:
            self._kept[mark] = Kept(*answer, until_s)
            self._kept_bytes += len(answer[1])
            while self._kept_bytes > rules.memory:
                self._drop(next(iter(self._kept)))

    def release(self, mark: tuple[int, int]) -> None:
        """See ``Claim.release``."""
        with self._table.locked():
            start = self._find(mark)
            if start is not None and self._cells[start + _STATE] == self._table.worker + 1:
                self._free(start)

    def close(self) -> None:
        """Unmaps."""
        self._kept.clear()
        self._cells.release()
        self._map.close()
        os.close(self._fd)

    def _digest(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, b"setpoint idempotency" + data, sha256)

    def _set(self, mark: tuple[int, int]) -> range:
        first = mark[0] % SETS * WAYS * _CELLS
        return range(first, first + WAYS * _CELLS, _CELLS)

    def _find(self, mark: tuple[int, int]) -> int | None:
        for start in self._set(mark):
            if (self._cells[start], self._cells[start + 1]) == mark and self._cells[start + _STATE] != _FREE:
                return start
        return None

    def _place(self, mark: tuple[int, int], who: int, now_ms: int) -> int:
        """An entry to take.

        Raises:
            Refusal: 503, every entry of the set is under way.
        """
        cells = self._cells
        answered = []
        for start in self._set(mark):
            if cells[start + _STATE] == _FREE or (
                cells[start + _STATE] == _ANSWERED and cells[start + _UNTIL_MS] <= now_ms
            ):
                return start
            if cells[start + _STATE] == _ANSWERED:
                answered.append(start)
        if not answered:
            raise Refusal(503, "idempotency_full", "Too many idempotency keys are in use.", retry_after_s=1)
        return min(answered, key=lambda s: (cells[s + _TENANT] != who, cells[s + _UNTIL_MS]))

    def _free(self, start: int) -> None:
        for cell in range(_CELLS):
            self._cells[start + cell] = 0

    def _drop(self, mark: tuple[int, int]) -> None:
        gone = self._kept.pop(mark, None)
        if gone is not None:
            self._kept_bytes -= len(gone.body)


def _cell(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True) or 1
