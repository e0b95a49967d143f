"""Safetensors and GGUF headers: real layouts, truncated files, hostile lengths."""

import json
import struct
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.errors import ModelSpecError
from setpoint.models.gguf_file import LARGEST_METADATA, read_gguf
from setpoint.models.gguf_spec import spec_from_gguf
from setpoint.models.safetensors_header import LARGEST_HEADER, ReadRange, bytes_by_dtype, read_header, read_index


def reader(content: bytes, most: int) -> ReadRange:
    """Serves a range, and fails when more is asked for than a header may have."""

    def read(offset: int, length: int) -> bytes:
        assert length <= most
        return content[offset : offset + length]

    return read


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


GOOD = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [12, 16]},
    "c": {"dtype": "F4", "shape": [3], "data_offsets": [16, 18]},
}


def header(content: bytes, size: int | None = None) -> object:
    return read_header(reader(content, LARGEST_HEADER), "x.safetensors", size)


def test_bytes_are_counted_by_type() -> None:
    content = safetensors(GOOD, b"\0" * 18)
    found = read_header(reader(content, LARGEST_HEADER), "x.safetensors", len(content))
    assert bytes_by_dtype(found) == {"BF16": 12, "F8_E4M3": 4, "F4": 2}


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        (b"\1\2", None, "truncated"),
        (struct.pack("<Q", 2**63), None, "claims a header of 9223372036854775808 bytes"),
        (struct.pack("<Q", 1000) + b"{}", None, "ends after 2 of 1000 header bytes"),
        (struct.pack("<Q", 1000) + b"{}", 10, "claims a header of 1000; it is truncated"),
        (safetensors(GOOD, b"\0" * 5), len(safetensors(GOOD)) + 5, "its tensors need"),
        (safetensors(b"not json"), None, "not understood"),
        (safetensors(b"[" * 100000), None, "not understood"),
        (safetensors({"a": {"dtype": "BF16"}}), None, "not understood"),
        (safetensors({"a": {"dtype": "X1", "shape": [1], "data_offsets": [0, 1]}}), None, "has the type 'X1'"),
        (safetensors({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 1]}}), None, "contradicts its offsets"),
        (safetensors({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}}), None, "negative"),
        (safetensors({"a": {"dtype": "U8", "shape": [1], "data_offsets": [5, 6]}}), None, "overlap or leave a gap"),
    ],
)
def test_bad_files_give_one_message(content: bytes, size: int | None, message: str) -> None:
    with pytest.raises(ModelSpecError, match=message):
        header(content, size)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 2**64 - 1) | st.integers(0, 300))
def test_any_bytes_are_tensors_or_one_error(content: bytes, length: int) -> None:
    with suppress(ModelSpecError):
        header(struct.pack("<Q", length) + content)


ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["BF16", "F32", "U8", "?"]),
        "shape": st.lists(st.integers(-1, 2**62), max_size=4),
        "data_offsets": st.tuples(st.integers(-1, 2**62), st.integers(0, 2**62)),
    }
)


@given(st.dictionaries(st.text(max_size=5), ENTRY | st.none() | st.integers(), max_size=4))
def test_any_header_is_tensors_or_one_error(entries: dict[str, object]) -> None:
    with suppress(ModelSpecError):
        header(safetensors(entries))


def test_an_index_lists_shards_once() -> None:
    shards = read_index(
        json.dumps(
            {
                "metadata": {"total_size": 42},
                "weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"},
            }
        ).encode(),
        "index",
    )
    assert shards == ("m-1.safetensors", "m-2.safetensors")


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", 7, "x.bin"])
def test_an_index_cannot_point_elsewhere(name: object) -> None:
    with pytest.raises(ModelSpecError, match="the same folder"):
        read_index(json.dumps({"weight_map": {"a": name}}).encode(), "index")


def written(path: Path, architecture: str = "llama") -> Path:
    """A small GGUF file, written by the package of the format's authors."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("Small")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(2048)
    writer.add_token_list([f"t{i}" for i in range(5000)])
    for layer in range(2):
        for name, rows, columns in (
            ("attn_q", 64, 64), ("attn_k", 32, 64), ("attn_v", 32, 64), ("attn_output", 64, 64),
            ("ffn_gate", 128, 64), ("ffn_up", 128, 64), ("ffn_down", 64, 128),
        ):  # fmt: skip
            values = gguf.quants.quantize(np.ones((rows, columns), np.float32), gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"blk.{layer}.{name}.weight", values, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("token_embd.weight", np.ones((5000, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_becomes_a_spec_with_the_bytes_of_its_tensors(tmp_path: Path) -> None:
    content = written(tmp_path / "small.gguf").read_bytes()
    spec = spec_from_gguf(reader(content, LARGEST_METADATA), "small.gguf")
    assert (spec.name, len(spec.layers), spec.vocabulary, spec.tied) == ("Small", 2, 5000, True)
    linear = 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 128 * 64)
    norms = 5 * 64
    assert spec.checkpoint_bytes == linear * 34 / 32 + 5000 * 64 * 2 + norms * 4


def test_an_unknown_version_is_said_so(tmp_path: Path) -> None:
    content = written(tmp_path / "small.gguf").read_bytes()
    changed = content[:4] + struct.pack("<I", 9) + content[8:]
    with pytest.raises(ModelSpecError, match="GGUF file of version 9; known are 2 and 3"):
        read_gguf(reader(changed, LARGEST_METADATA), "small.gguf")


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    content = written(tmp_path / "small.gguf", "warp").read_bytes()
    with pytest.raises(ModelSpecError, match="architecture is 'warp', which is not understood"):
        spec_from_gguf(reader(content, LARGEST_METADATA), "small.gguf")


def test_every_truncation_is_one_error(tmp_path: Path) -> None:
    content = written(tmp_path / "small.gguf").read_bytes()
    for end in range(0, 400, 7):
        with pytest.raises(ModelSpecError):
            read_gguf(reader(content[:end] or b"\0", LARGEST_METADATA), "small.gguf")


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("<QQ", 2**60, 1),
        struct.pack("<QQ", 1, 2**60),
        struct.pack("<QQ", 0, 1) + struct.pack("<Q", 2**60),
        struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, 2**60),
        struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 9, 1) * 9,
        struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<I", 99),
    ],
)
def test_hostile_counts_are_refused_without_reading_them(body: bytes) -> None:
    with pytest.raises(ModelSpecError):
        read_gguf(reader(b"GGUF" + struct.pack("<I", 3) + body, LARGEST_METADATA), "x.gguf")


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_gguf_body_is_read_or_one_error(body: bytes) -> None:
    with suppress(ModelSpecError):
        read_gguf(reader(b"GGUF" + struct.pack("<I", 3) + body, LARGEST_METADATA), "x.gguf")
