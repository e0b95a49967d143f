"""Prefixes of prompts as chains of block hashes, and which replica was sent which.

A block is ``BLOCK_BYTES`` of the request's own JSON of tools, system and messages, in that order: a later turn of a
conversation repeats the bytes of the earlier ones, so nothing needs to be tokenized. The chain starts from model and
tenant salt: equal prompts of two tenants share nothing.
"""

import mmap
import os
from pathlib import Path

import xxhash

from setpoint.errors import SetpointError

BLOCK_BYTES = 1024
BLOCK_TOKENS = 256  # about; what a block stands for where tokens are counted
WAYS = 8
RECENT_WAYS = WAYS // 2  # order among the more recent half of a set is not kept
_CELL = 8
# Anthropic clients move this mark from turn to turn; it changes no token.
_MOVING = (b',"cache_control":{"type":"ephemeral"}', b', "cache_control": {"type": "ephemeral"}')


def chain(salt: bytes, parts: tuple[bytes, ...], *, marked: bool = False) -> list[int]:
    """Hashes of the whole blocks of ``parts``, each over everything before it. The last, unfinished block has none.

    Args:
        salt: What the chain starts from.
        parts: The prompt.
        marked: Whether it may bear marks that move from turn to turn.
    """
    text = parts[0] if len(parts) == 1 else b"\x00".join(parts)
    if marked:
        for mark in _MOVING:
            text = text.replace(mark, b"")
    if len(text) < BLOCK_BYTES:
        return []
    digest = xxhash.xxh3_64_intdigest
    value = digest(salt)
    return [
        value := digest(text[start : start + BLOCK_BYTES], value)
        for start in range(0, len(text) - BLOCK_BYTES + 1, BLOCK_BYTES)
    ]


class PrefixIndex:
    """Which blocks one replica's cache is believed to hold; shared by the workers.

    A set-associative table with the least recently used block of a set replaced: lookups and updates touch eight
    neighbouring cells and need no lock, since a lost update costs a prediction and nothing else.

    Args:
        path: File that the workers map; its size is added to the name.
        capacity_tokens: Size of the replica's cache.

    Raises:
        SetpointError: the file cannot be mapped.
    """

    def __init__(self, path: Path, capacity_tokens: int) -> None:
        self._sets = max(1, capacity_tokens // BLOCK_TOKENS // WAYS)
        size = self._sets * WAYS * _CELL
        # A file for each size: who still maps one that is cut shorter, as after a reload, is killed at its next read.
        path = path.with_name(f"{path.name}-{self._sets}")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if os.fstat(self._fd).st_size < size:
                os.ftruncate(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            raise SetpointError(
                f"The prefix index {path} cannot be used: {(error.strerror or 'no').lower()}."
            ) from None
        self._cells = memoryview(self._map).cast("Q")

    def limit(self, capacity_tokens: int) -> None:
        """The cache turned out to be smaller than the file allows for; what was believed is forgotten."""
        allocated = len(self._cells) // WAYS
        self._sets = max(1, min(allocated, capacity_tokens // BLOCK_TOKENS // WAYS))
        self.clear()

    def cached_blocks(self, hashes: list[int]) -> int:
        """Leading blocks of a chain that the replica is believed to hold."""
        low, high = 0, len(hashes)
        while low < high:  # a chain's blocks are inserted from the front: what holds a block holds those before it
            middle = (low + high) // 2
            if self._holds(hashes[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def _holds(self, value: int) -> bool:
        start = value % self._sets * WAYS
        return value in self._cells[start : start + WAYS].tolist()

    def insert(self, hashes: list[int]) -> None:
        """The replica was sent this chain; its blocks become the more recently used, the first ones most."""
        cells, sets = self._cells, self._sets
        for value in reversed(hashes):
            start = value % sets * WAYS
            if value in cells[start : start + RECENT_WAYS].tolist():
                continue  # it is far from being replaced: a long prompt that is sent again moves nothing
            older = cells[start + RECENT_WAYS : start + WAYS].tolist()
            position = RECENT_WAYS + older.index(value) if value in older else WAYS - 1
            cells[start + 1 : start + position + 1] = cells[start : start + position]
            cells[start] = value

    def clear(self) -> None:
        """The replica has lost its cache."""
        self._map[:] = bytes(len(self._map))

    def close(self) -> None:
        """Unmaps."""
        self._cells.release()
        self._map.close()
        os.close(self._fd)
