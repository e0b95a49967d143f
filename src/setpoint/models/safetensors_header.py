"""Safetensors headers and indexes: how many bytes a checkpoint has in which type, without reading a tensor.

A file begins with the header's length (8 bytes, little-endian) and the header, a JSON object of tensors
(https://github.com/huggingface/safetensors#format). Both are read through a function that reads a range, so that a
caller can serve it from a file, from memory or with HTTP range requests.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from setpoint.errors import ModelSpecError
from setpoint.models.fields import Fields, read_json

ReadRange = Callable[[int, int], bytes]
"""Reads (offset, length); may return fewer bytes at the end of the file."""

LARGEST_HEADER = 16 * 2**20
"""Bytes. Headers in the wild stay below 2 MB; the format's own limit of 100 MB would cost a gigabyte to decode."""

DTYPE_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "I64": 64, "U64": 64, "I32": 32, "U32": 32, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "C64": 64,
}  # fmt: skip


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file.

    Attributes:
        name: Its name.
        dtype: As the format spells it, e.g. ``BF16``.
        shape: Its dimensions.
        size: Bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


def read_header(read: ReadRange, where: str, file_bytes: int | None = None) -> tuple[Tensor, ...]:
    """The tensors of one file.

    Args:
        read: Reads a range of the file; called twice, for 8 bytes and for the header.
        where: File name, for messages.
        file_bytes: Size of the file, when known; what the header claims is held against it.

    Raises:
        ModelSpecError: the file is truncated, the header is too long, or it contradicts itself.
    """
    first = read(0, 8)
    if len(first) < 8:
        raise ModelSpecError(f"{where} has {len(first)} bytes, too few for a safetensors header; it is truncated.")
    length = int.from_bytes(first[:8], "little")
    if not 2 <= length <= LARGEST_HEADER:
        raise ModelSpecError(
            f"{where} claims a header of {length} bytes, expected 2 to {LARGEST_HEADER}; it is no safetensors file."
        )
    if file_bytes is not None and 8 + length > file_bytes:
        raise ModelSpecError(f"{where} has {file_bytes} bytes but claims a header of {length}; it is truncated.")
    content = read(8, length)
    if len(content) < length:
        raise ModelSpecError(f"{where} ends after {len(content)} of {length} header bytes; it is truncated.")
    tensors = _tensors(content[:length], where)
    data = sum(tensor.size for tensor in tensors)
    if file_bytes is not None and 8 + length + data > file_bytes:
        raise ModelSpecError(
            f"{where} has {file_bytes} bytes but its tensors need {8 + length + data}; it is truncated."
        )
    return tensors


def _tensors(content: bytes, where: str) -> tuple[Tensor, ...]:
    try:
        entries = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        entries.pop("__metadata__", None)
        found = [(name, msgspec.json.decode(raw, type=_Entry)) for name, raw in entries.items()]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelSpecError(f"{where} has a header that is not understood: {str(error)[:200]}.") from None
    tensors, ends = [], []
    for name, entry in found:
        bits = DTYPE_BITS.get(entry.dtype)
        begin, end = entry.data_offsets
        if bits is None:
            raise ModelSpecError(
                f"{where}: the tensor {name[:80]!r} has the type {entry.dtype[:20]!r}, not understood."
            )
        if any(side < 0 for side in entry.shape) or not 0 <= begin <= end:
            raise ModelSpecError(f"{where}: the tensor {name[:80]!r} has a negative size or offset.")
        if -(-math.prod(entry.shape) * bits // 8) != end - begin:
            raise ModelSpecError(f"{where}: the tensor {name[:80]!r} has a shape that contradicts its offsets.")
        tensors.append(Tensor(name, entry.dtype, tuple(entry.shape), end - begin))
        ends.append((begin, end))
    position = 0
    for begin, end in sorted(ends):
        if begin != position:
            raise ModelSpecError(f"{where} has tensors that overlap or leave a gap at byte {position} of the data.")
        position = end
    return tuple(tensors)


def bytes_by_dtype(tensors: Iterable[Tensor]) -> Mapping[str, int]:
    """Bytes of some tensors by type, largest first."""
    total: dict[str, int] = {}
    for tensor in tensors:
        total[tensor.dtype] = total.get(tensor.dtype, 0) + tensor.size
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def read_index(content: bytes, where: str) -> tuple[str, ...]:
    """The file names, each once and sorted, in the index of a checkpoint in several files.

    Raises:
        ModelSpecError: it has no ``weight_map``, or a shard's name is no plain file name.
    """
    fields = Fields(read_json(content, where), where)
    names = fields.inner("weight_map")
    if names is None or not names.values:
        raise fields.wrong("weight_map", "an object from tensor to file name")
    shards = set()
    for tensor, name in names.values.items():
        if not isinstance(name, str) or not name.endswith(".safetensors") or "/" in name or "\\" in name:
            raise names.wrong(tensor, "the name of a .safetensors file in the same folder")
        shards.add(name)
    return tuple(sorted(shards))
