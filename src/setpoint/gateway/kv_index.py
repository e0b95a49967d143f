"""Which token blocks one engine's prefix cache holds, as its own KV cache events tell.

The events are vLLM's (``vllm/distributed/kv_events.py``): batches of ``BlockStored``, ``BlockRemoved`` and
``AllBlocksCleared`` in MessagePack, as arrays in older releases, as maps in newer ones. An engine's block hashes cannot
be computed outside of it, since their seed and function are its own; but ``BlockStored`` carries the block's token ids
and its parent, so that a chain of our own over the token ids stands for each of them. A prompt's tokens are then looked
up in these chains.

What is not followed, so that it is never taken for a hit: blocks of LoRA adapters where the event does not say which,
blocks outside of the GPU, and all but the first group of a model with several kinds of attention. Blocks of images and
of other tenants' salts are followed under the engine's extra keys and match no other prompt.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
import xxhash

from setpoint.errors import SetpointError

MAX_BLOCKS = 2**20
_FIELDS = {
    "BlockStored": (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
        "group_idx",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}  # fmt: skip
_EXTRA_KEYS = 1 + _FIELDS["BlockStored"].index("extra_keys")
_SEED = 0x5E7_0147
_digest = xxhash.xxh3_64_intdigest
_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


class EventError(SetpointError):
    """A message is none of the events that are known here."""


class KvIndex:
    """The blocks of one engine.

    Attributes:
        complete: Every block that the engine holds is known: its events were seen from the first on.
        names_salt: The engine's events tell the blocks of different cache salts apart.
    """

    def __init__(self) -> None:
        self.complete = False
        self.names_salt = False
        self._block_tokens = 0
        self._ours: dict[int | bytes, int] = {}  # by the engine's own hash
        self._held: set[int] = set()

    def __len__(self) -> int:
        return len(self._held)

    def clear(self, *, complete: bool) -> None:
        """Nothing is known to be held any more; ``complete`` says whether that is because nothing is."""
        self._ours.clear()
        self._held.clear()
        self.complete = complete

    def apply(self, payload: bytes) -> None:
        """Takes one batch.

        Raises:
            EventError: it is none; what was known before it is not changed by its later events.
        """
        try:
            batch = _decode(payload)
            events = batch["events"] if isinstance(batch, dict) else batch[1]
            for event in events:
                kind, fields = _read(event)
                if kind == "BlockStored":
                    self._stored(fields)
                elif kind == "BlockRemoved":
                    self._removed(fields)
                else:
                    self.clear(complete=True)
        except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
            raise EventError("A message is no batch of KV cache events as vLLM is known to send them.") from None

    def _stored(self, fields: dict[str, Any]) -> None:
        if not _followed(fields):
            return  # before anything is checked: a group that keeps only a window names fewer blocks than its tokens
        hashes, size = list(fields["block_hashes"]), int(fields["block_size"])
        tokens, extra = array("I", fields["token_ids"]).tobytes(), fields.get("extra_keys")
        if size < 1 or len(tokens) != 4 * size * len(hashes) or (extra is not None and len(extra) != len(hashes)):
            raise ValueError
        if fields["listed"] is None or fields["listed"] > _EXTRA_KEYS:
            self.names_salt = True
        adapted = fields.get("lora_id") is not None or fields.get("lora_name") is not None
        if adapted and extra is None:
            return
        parent = fields.get("parent_block_hash")
        value = _SEED if parent is None else self._ours.get(parent)
        if value is None:
            return  # its beginning was stored before this side listened: no prompt can be matched to it
        # a prompt's unfinished last block may be told too, and is smaller; another size begins in an empty cache
        self._block_tokens = max(size, self._block_tokens) if self._held else size
        for i, theirs in enumerate(hashes):
            value = _chained(value, tokens[4 * size * i : 4 * size * (i + 1)], None if extra is None else extra[i])
            self._ours[theirs] = value
            self._held.add(value)
        if len(self._ours) > MAX_BLOCKS:
            self.clear(complete=False)

    def _removed(self, fields: dict[str, Any]) -> None:
        if _followed(fields):
            for theirs in fields["block_hashes"]:
                value = self._ours.pop(theirs, None)
                if value is not None:
                    self._held.discard(value)

    def cached_tokens(self, tokens: bytes, salt: str | None) -> int | None:
        """Leading tokens of a prompt that the engine holds; None where its events cannot tell.

        Args:
            tokens: Ids, four bytes each in this machine's order. The engine computes at least the last one.
            salt: Cache salt that the request carries.
        """
        size = self._block_tokens
        if not size or (salt is not None and not self.names_salt):
            return None
        value, held, width = _SEED, 0, 4 * size
        for start in range(0, (len(tokens) // 4 - 1) // size * width, width):
            value = _chained(value, tokens[start : start + width], [salt] if salt is not None and not start else None)
            if value not in self._held:
                break
            held += size
        return held


def _read(event: dict[str, Any] | list[Any]) -> tuple[str, dict[str, Any]]:
    """Kind and fields of an event; ``listed`` counts the places of one in an array, None in a map."""
    if isinstance(event, dict):
        kind = event["type"]
        fields = {name: event[name] for name in _FIELDS[kind] if name in event}
        return kind, fields | {"listed": None}
    kind = event[0]
    return kind, dict(zip(_FIELDS[kind], event[1:], strict=False)) | {"listed": len(event)}


def _followed(fields: dict[str, Any]) -> bool:
    return fields.get("medium") in (None, "GPU") and fields.get("group_idx") in (None, 0)


def _chained(parent: int, tokens: bytes, extra: Sequence[object] | None) -> int:
    return _digest(tokens + _encode(extra) if extra else tokens, parent)
