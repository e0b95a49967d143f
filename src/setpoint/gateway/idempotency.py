"""Requests that carry an ``Idempotency-Key``: while one is under way, and once it was answered, it is not done again.

Which keys are in use is known to all workers: as keyed hashes and times, no text, in memory that they map or, where
several gateways must agree, in Redis. An answer that is one small document is kept in the memory of the worker that
gave it, and said again; of any other (a stream, a large document, one that another worker gave) only that it was given
is known. An attempt that brought no whole answer frees its key: the client may try again, and will. After the IETF
draft draft-ietf-httpapi-idempotency-key-header: 409 while one is under way, 422 where the same key comes with another
request.
"""

import hmac
import mmap
import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

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
class Named:
    """What a client's key stands for, in keyed hashes of 32 bytes.

    Attributes:
        key: Of tenant and key: keys of different tenants have nothing to do with each other.
        tenant: Of the tenant.
        request: Of what was asked.
    """

    key: bytes
    tenant: bytes
    request: bytes


def named(secret: bytes, tenant: str, key: str, request: bytes) -> Named:
    """Hashes of a key, keyed with a secret of whoever must know it again.

    Raises:
        Refusal: 400 for a key that is none.
    """
    if not (0 < len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable()):
        raise Refusal(
            400, "invalid_request", f"The field idempotency-key takes 1 to {MAX_KEY_CHARS} printable characters."
        )
    owner = tenant.encode()
    whole = len(owner).to_bytes(4, "big") + owner + key.encode()
    return Named(*(hmac.digest(secret, b"setpoint idempotency" + data, sha256) for data in (whole, owner, request)))


def mismatch() -> Refusal:
    """The key stands for another request."""
    return Refusal(422, "idempotency_mismatch", "This idempotency key was used for another request.")


def in_flight() -> Refusal:
    """The key's request has no answer yet."""
    return Refusal(409, "idempotency_in_flight", "A request with this idempotency key is under way.", retry_after_s=1)


def answered_before() -> Refusal:
    """The key's request has had its answer, and it is not here."""
    return Refusal(
        409, "idempotency_answered", "The request with this idempotency key was answered; it is not done again."
    )


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


class KeptAnswers:
    """Documents that one worker process gave, in its memory alone; the oldest make room.

    Attributes:
        size: Bytes of all.
    """

    def __init__(self) -> None:
        self.size = 0
        self._kept: OrderedDict[tuple[bytes, bytes], Kept] = OrderedDict()

    def keep(self, name: Named, rules: Rules, answer: tuple[str, bytes] | None) -> None:
        """Keeps an answer for the window, if it is a document that is small enough."""
        self.drop(name)
        if answer is not None and len(answer[1]) <= rules.max_answer:
            self._kept[name.key, name.request] = Kept(*answer, time.time() + rules.window)
            self.size += len(answer[1])
            while self.size > rules.memory:
                self.size -= len(self._kept.popitem(last=False)[1].body)

    def find(self, name: Named) -> Kept:
        """The answer that the key and this very request had.

        Raises:
            Refusal: 409, it is not here.
        """
        kept = self._kept.get((name.key, name.request))
        if kept is None or kept.until_s < time.time():
            raise answered_before()
        return kept

    def drop(self, name: Named) -> None:
        """Forgets an answer."""
        gone = self._kept.pop((name.key, name.request), None)
        if gone is not None:
            self.size -= len(gone.body)

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()
        self.size = 0


@dataclass(slots=True, eq=False)
class Claim:
    """A key in use by one exchange. It ends by ``answered`` or ``release``; a second end changes nothing.

    Attributes:
        store: Where it stands.
        name: Of the key.
        owner: Tells it from every other claim, where claims outlive a process.
    """

    store: "IdempotencyStore"
    name: Named
    owner: str = ""
    open: bool = True

    def answered(self, rules: Rules, answer: tuple[str, bytes] | None) -> None:
        """The request has its whole answer; it is not done again until the window has passed.

        Args:
            rules: For how long, and how much may be kept.
            answer: Content type and body of a document; None for a stream.
        """
        if self.open:
            self.open = False
            self.store.answered(self, rules, answer)

    def release(self) -> None:
        """No whole answer came of it: the key is free again."""
        if self.open:
            self.open = False
            self.store.release(self)


class IdempotencyStore(Protocol):
    """Where the keys in use are known."""

    async def claim(self, tenant: str, key: str, request: bytes) -> Claim | Kept:
        """Takes a key for a request, or gives the answer that it had.

        Args:
            tenant: Keys of different tenants have nothing to do with each other.
            key: The header's value.
            request: What the key stands for: address and body.

        Raises:
            Refusal: 400 for a key that is none, 409 while or after one that cannot be said again, 422 for another
                request under the same key, 503 where it cannot be known.
        """
        ...

    def answered(self, claim: Claim, rules: Rules, answer: tuple[str, bytes] | None) -> None:
        """See ``Claim.answered``. Never fails, never waits."""
        ...

    def release(self, claim: Claim) -> None:
        """See ``Claim.release``. Never fails, never waits."""
        ...

    async def close(self) -> None:
        """Ends, once all that has ended is known."""
        ...


class IdempotencyKeys:
    """Implements ``IdempotencyStore``: the keys in use, shared by the workers of one gateway.

    A set-associative table. In a full set the tenant's own oldest answered key gives way first, then the oldest of any,
    so that a tenant who sends many takes no other's place.

    Args:
        path: File that the workers map.
        table: Its lock excludes the other workers, and it knows which worker this is.
        secret: Keys the hashes.

    Attributes:
        answers: That this worker gave.

    Raises:
        SetpointError: the file cannot be mapped.
    """

    def __init__(self, path: Path, table: SharedTable, secret: bytes) -> None:
        self._table, self._secret = table, secret
        self.answers = KeptAnswers()
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

    async def claim(self, tenant: str, key: str, request: bytes) -> Claim | Kept:
        """See ``IdempotencyStore``. Never waits."""
        name = named(self._secret, tenant, key, request)
        mark, wanted, who = _marks(name), _cell(name.request[:8]), _cell(name.tenant[:8])
        now_ms = int(time.time() * 1000)
        cells = self._cells
        with self._table.locked():
            start = self._find(mark)
            if start is not None and (cells[start + _STATE] > 0 or cells[start + _UNTIL_MS] > now_ms):
                if cells[start + _REQUEST] != wanted:
                    raise mismatch()
                if cells[start + _STATE] > 0:
                    raise in_flight()
                return self.answers.find(name)
            if start is None:
                start = self._place(mark, who, now_ms)
            cells[start], cells[start + 1] = mark
            cells[start + _TENANT], cells[start + _REQUEST] = who, wanted
            cells[start + _STATE], cells[start + _UNTIL_MS] = self._table.worker + 1, now_ms
        self.answers.drop(name)
        return Claim(self, name)

    def answered(self, claim: Claim, rules: Rules, answer: tuple[str, bytes] | None) -> None:
        """See ``Claim.answered``."""
        until_ms = int((time.time() + rules.window) * 1000)
        with self._table.locked():
            start = self._find(_marks(claim.name))
            if start is not None:
                self._cells[start + _STATE], self._cells[start + _UNTIL_MS] = _ANSWERED, until_ms
        self.answers.keep(claim.name, rules, answer)

    def release(self, claim: Claim) -> None:
        """See ``Claim.release``."""
        with self._table.locked():
            start = self._find(_marks(claim.name))
            if start is not None and self._cells[start + _STATE] == self._table.worker + 1:
                self._free(start)

    async def close(self) -> None:
        """Unmaps."""
        self.answers.clear()
        self._cells.release()
        self._map.close()
        os.close(self._fd)

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


def _marks(name: Named) -> tuple[int, int]:
    return _cell(name.key[:8]), _cell(name.key[8:16])


def _cell(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True) or 1
