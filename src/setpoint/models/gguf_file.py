"""GGUF metadata and tensor list to a model spec, without reading a tensor.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; types and block sizes come from the ``gguf``
package. The package's own reader maps the whole file and keeps every array; this one reads ranges, skips long arrays,
and stops at limits, so that it also works over HTTP and on hostile files.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGUF_MAGIC, GGUF_VERSION, GGMLQuantizationType, GGUFValueType

from setpoint.errors import ModelSpecError
from setpoint.models.safetensors_header import ReadRange

VERSIONS = (2, GGUF_VERSION)
LARGEST_METADATA = 256 * 2**20
MOST_ENTRIES = 65536
MOST_TENSORS = 1_000_000
LONGEST_STRING = 2**24
LONGEST_KEPT_ARRAY = 4096
_CHUNK = 2**20
_SCALARS = {
    GGUFValueType.UINT8: "B", GGUFValueType.INT8: "b", GGUFValueType.UINT16: "H", GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I", GGUFValueType.INT32: "i", GGUFValueType.FLOAT32: "f", GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q", GGUFValueType.INT64: "q", GGUFValueType.FLOAT64: "d",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor.

    Attributes:
        name: As ggml names it, e.g. ``blk.0.attn_q.weight``.
        shape: Dimensions, fastest first.
        type: ggml type, e.g. ``Q4_K``.
        bits: Bits per weight, scales included.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    bits: float


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a file says before its tensors.

    Attributes:
        metadata: Key to value; of an array longer than 4,096 its length alone, as ``("array", length)``.
        tensors: Every tensor.
    """

    metadata: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]


def read_gguf(read: ReadRange, where: str) -> GgufHeader:
    """The header of a file.

    Raises:
        ModelSpecError: it is no GGUF file, of an unknown version, truncated, or larger than any real header.
    """
    cursor = _Cursor(read, where)
    if cursor.number("I") != GGUF_MAGIC:
        raise ModelSpecError(f"{where} is no GGUF file: it does not begin with 'GGUF'.")
    version = cursor.number("I")
    if version not in VERSIONS:
        known = " and ".join(str(v) for v in VERSIONS)
        raise ModelSpecError(
            f"{where} is a GGUF file of version {version}; known are {known}.", fix="Convert it again."
        )
    tensors, entries = cursor.number("Q"), cursor.number("Q")
    if entries > MOST_ENTRIES or tensors > MOST_TENSORS:
        raise ModelSpecError(f"{where} claims {entries} metadata entries and {tensors} tensors, more than any model.")
    metadata = {}
    for _ in range(entries):
        name = cursor.text()
        metadata[name] = cursor.value(cursor.number("I"), 0)
    return GgufHeader(metadata, tuple(_tensor(cursor, where) for _ in range(tensors)))


def _tensor(cursor: "_Cursor", where: str) -> GgufTensor:
    name, sides = cursor.text(), cursor.number("I")
    if sides > 8:
        raise ModelSpecError(f"{where}: the tensor {name[:80]!r} has {sides} dimensions.")
    shape = tuple(cursor.number("Q") for _ in range(sides))
    code = cursor.number("I")
    cursor.number("Q")
    try:
        kind = GGMLQuantizationType(code)
    except ValueError:
        raise ModelSpecError(
            f"{where}: the tensor {name[:80]!r} has the type {code}, which is not understood."
        ) from None
    block, size = GGML_QUANT_SIZES[kind]
    return GgufTensor(name, shape, kind.name, 8 * size / block)


class _Cursor:
    """Reads forward in chunks, and never more than a header may have."""

    def __init__(self, read: ReadRange, where: str) -> None:
        self.read, self.where = read, where
        self.chunk, self.start, self.at = b"", 0, 0

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > LARGEST_METADATA:
            raise ModelSpecError(f"{self.where} has more than {LARGEST_METADATA} bytes of metadata.")
        if end > self.start + len(self.chunk):
            rest = self.chunk[self.at - self.start :]
            more = self.read(self.at + len(rest), max(_CHUNK, length - len(rest)))
            self.chunk, self.start = rest + more, self.at
        found = self.chunk[self.at - self.start : end - self.start]
        if len(found) < length:
            raise ModelSpecError(f"{self.where} ends within its metadata; it is truncated.")
        self.at = end
        return found

    def number(self, code: str) -> Any:  # noqa: ANN401 - int, float or bool, by the code
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        length = self.number("Q")
        if length > LONGEST_STRING:
            raise ModelSpecError(f"{self.where} claims a string of {length} bytes.")
        return self.take(length).decode("utf-8", "replace")

    def value(self, code: int, depth: int) -> Any:  # noqa: ANN401 - a value of the file's own type
        try:
            kind = GGUFValueType(code)
        except ValueError:
            raise ModelSpecError(f"{self.where} has a value of the type {code}, which is not understood.") from None
        if kind is GGUFValueType.STRING:
            return self.text()
        if kind is not GGUFValueType.ARRAY:
            return self.number(_SCALARS[kind])
        if depth > 2:
            raise ModelSpecError(f"{self.where} has arrays within arrays within arrays.")
        item, length = self.number("I"), self.number("Q")
        if length > LARGEST_METADATA:
            raise ModelSpecError(f"{self.where} claims an array of {length} items.")
        kept = []
        for _ in range(length):
            found = self.value(item, depth + 1)
            if length <= LONGEST_KEPT_ARRAY:
                kept.append(found)
        return kept if length <= LONGEST_KEPT_ARRAY else ("array", length)
