"""Traces of profilers become tables."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from setpoint.cli import run
from setpoint.diagnosis.profile.kernel import Kernel, family_of
from setpoint.diagnosis.profile.kineto import read_kineto
from setpoint.diagnosis.profile.nsight import read_nsight
from setpoint.diagnosis.profile.summary import Bound, Roof, profile
from setpoint.errors import UsageError

ROOF = Roof(flops_per_s=1e15, bytes_per_s=4e12)  # ridge at 250 operations a byte


def kernel(name: str, ts: float, dur: float, external: int = 0, **args: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur,
        "args": {"device": 0, "stream": 7, "External id": external, **args},
    }  # fmt: skip


def multiply(external: int, rows: int, inner: int, columns: int) -> dict[str, Any]:
    args = {
        "External id": external, "Input Dims": [[rows, inner], [inner, columns]],
        "Input type": ["c10::BFloat16", "c10::BFloat16"],
    }  # fmt: skip
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1, "args": args}


def trace(path: Path, events: list[dict[str, Any]]) -> Path:
    content = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


EVENTS = [
    multiply(1, 8192, 4096, 4096),
    multiply(2, 8, 4096, 4096),
    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
    kernel("sm90_xmma_gemm_bf16bf16_bf16f32", 0.0, 300.0, 1),
    kernel("sm90_xmma_gemm_bf16bf16_bf16f32", 300.0, 10.0, 2),
    kernel("void flash::flash_fwd_splitkv_kernel<...>", 330.0, 50.0),
    {
        "ph": "X",
        "cat": "gpu_memcpy",
        "name": "Memcpy HtoD",
        "ts": 380.0,
        "dur": 20.0,
        "args": {"device": 0, "stream": 8},
    },
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0.0, "dur": 5.0, "args": {}},
]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_kineto_trace_becomes_families_gaps_and_bounds(tmp_path: Path, name: str) -> None:
    found = profile(read_kineto(trace(tmp_path / name, EVENTS)), ROOF)
    families = {f.name: f for f in found.families}
    assert [f.name for f in found.families] == ["matrix multiplication", "attention", "copy"]
    gemm = families["matrix multiplication"]
    assert gemm.calls == 2
    assert gemm.share == pytest.approx(310 / 380)
    assert gemm.bound is Bound.COMPUTE  # the prefill's takes most of the time
    assert gemm.known_share == pytest.approx(1.0)
    assert families["attention"].bound is Bound.UNKNOWN
    assert found.span_s == pytest.approx(400e-6)
    assert found.busy_share == pytest.approx(380 / 400)
    assert found.gaps == 1
    assert found.gap_s == pytest.approx(20e-6)


def test_a_decode_multiplication_is_bound_by_bandwidth_and_a_prefill_by_compute(tmp_path: Path) -> None:
    large, small = read_kineto(trace(tmp_path / "t.json", EVENTS))[:2]
    assert large.flops == 2 * 8192 * 4096 * 4096
    assert small.bytes == 2 * (8 * 4096 + 4096 * 4096 + 8 * 4096)
    assert ROOF.bound(large.flops or 0, large.bytes or 1) is Bound.COMPUTE
    assert ROOF.bound(small.flops or 0, small.bytes or 1) is Bound.BANDWIDTH


def test_without_a_roof_nothing_is_said_about_bounds(tmp_path: Path) -> None:
    found = profile(read_kineto(trace(tmp_path / "t.json", EVENTS)))
    assert {f.bound for f in found.families} == {Bound.UNKNOWN}


def test_overlapping_kernels_are_busy_once() -> None:
    found = profile([Kernel("gemm", 0, 1, 0.0, 1.0), Kernel("nccl", 0, 2, 0.5, 1.0), Kernel("gemm", 1, 1, 0.0, 1.0)])
    assert found.devices == 2
    assert found.span_s == pytest.approx(2.5)
    assert found.busy_share == pytest.approx(1.0)
    assert found.gaps == 0


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication"),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>", "KV cache"),
        ("void vllm::rms_norm_kernel<c10::BFloat16>", "normalization"),
        ("nvjet_hsh_128x256_64x4_TNT", "matrix multiplication"),
        ("fused_moe_kernel", "mixture of experts"),
        ("void at::native::vectorized_elementwise_kernel<4>", "elementwise"),
        ("Memset (Device)", "copy"),
        ("something_new", "other"),
    ],
)
def test_families_by_name(name: str, family: str) -> None:
    assert family_of(name) == family


def nsight(path: Path) -> Path:
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        base.execute("INSERT INTO StringIds VALUES (1, 'gemm_kernel'), (2, 'flash_fwd_kernel')")
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL"
            " (start INT, end INT, deviceId INT, streamId INT, demangledName INT)"
        )
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 1000, 0, 7, 1), (11000, 14000, 0, 7, 2)")
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT)")
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (14000, 15000, 0, 8)")
    base.close()
    return path


def test_an_nsight_export_is_read_too(tmp_path: Path) -> None:
    found = profile(read_nsight(nsight(tmp_path / "report.sqlite")))
    assert {f.name: f.calls for f in found.families} == {"attention": 1, "matrix multiplication": 1, "copy": 1}
    assert found.gap_s == pytest.approx(10e-6)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[", "no whole JSON"),
        (b"{}", "traceEvents"),
        (b"\x1f\x8bbroken", "no whole JSON"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm"}]}', "traceEvents[0]"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        read_kineto(path)
    assert words in str(error.value)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_bytes(b"not a database at all, not even close to one")
    with pytest.raises(UsageError):
        read_nsight(tmp_path / "a.sqlite")
    sqlite3.connect(tmp_path / "b.sqlite").close()
    with pytest.raises(UsageError, match="KERNEL"):
        read_nsight(tmp_path / "b.sqlite")


def test_an_export_with_a_kernel_that_never_ended_is_refused(tmp_path: Path) -> None:
    path = nsight(tmp_path / "report.sqlite")
    with sqlite3.connect(path) as base:
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20000, NULL, 0, 7, 1)")
    base.close()
    with pytest.raises(UsageError, match="an end"):
        read_nsight(path)


@pytest.mark.parametrize("shapes", [None, 7, ["x", "y"], [["a", "b"], ["b", "c"]], [[4], [4]], [[2, 3], [4, 5]]])
def test_shapes_that_are_none_leave_the_bound_unknown(tmp_path: Path, shapes: object) -> None:
    operator = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "ts": 0,
        "dur": 1,
        "args": {"External id": 1, "Input Dims": shapes, "Input type": shapes},
    }
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "dur": 2, "args": {"External id": 1}}
    (found,) = read_kineto(trace(tmp_path / "t.json", [operator, kernel]))
    assert found.flops is None


def test_the_verb_prints_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace(tmp_path / "t.json", EVENTS)
    assert run(["profile", str(path), "--tflops", "1000", "--gb-per-s", "4000"]) == 0
    shown = capsys.readouterr().out
    assert "multiplication" in shown
    assert "busy 95.0% of 400" in shown
    assert run(["profile", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == 1
    assert run(["profile", str(path), "--tflops", "1000"]) == 2
    assert run(["profile", str(tmp_path / "absent.json")]) == 2
