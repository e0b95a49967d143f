"""Measured rows of TTFT and TPOT into cases of the latency estimate, with a reason for each row that is left out.

What the table says and does not say, as found by reading it:

* Rows whose source is a daily dump or ``db-dump`` draw prompt and answer lengths evenly from 80 to 100% of the stated
  ones, so their mean is taken as 90%. With it, our count of sessions that fit over that solved from TTFT by Little's
  law has a median of 1.05 on the 30 rows with more sessions than fit (middle 80%: 0.73 to 1.18). Other rows hold
  lengths fixed.
* ``tp_size`` of some dumps is the product of tensor and expert parallelism, ``attention_dp_size`` likewise.
* Drafting with the model's own head is not stated. The same configuration occurs with TPOT 1.2 to 2 times apart, by
  container image; ``fit_latency.py`` infers one bit a configuration.
"""

import dataclasses
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from setpoint.hardware import Accelerator, find
from setpoint.models.config import spec_from_config
from setpoint.models.precision import BF16, FP8, FP8_BLOCK128, NVFP4, Format, Precision
from setpoint.models.spec import ModelSpec
from setpoint.sizing.latency.from_spec import shape_of
from setpoint.sizing.latency.service import DRAFTED, Cases
from setpoint.sizing.latency.shape import Shape
from setpoint.sizing.latency.terms import Backend
from setpoint.sizing.latency.tuned import Stack, stack_of
from setpoint.sizing.latency.work import Split, Work, stack, step

SYSTEMS = {
    "h100_sxm": "H100-SXM", "h200_sxm": "H200-SXM", "b200_sxm": "B200-SXM",
    "b300_sxm": "B300-SXM", "gb200": "GB200", "gb300": "GB300",
}  # fmt: skip
FAMILIES = {
    "DeepSeek": "DeepSeek-R1/V3", "MiniMax": "MiniMax-M2.5", "gpt-oss": "gpt-oss-120b",
    "Llama-3.1-70B": "Llama-3.1-70B", "Llama-3.1-8B": "Llama-3.1-8B", "Qwen3-32B": "Qwen3-32B",
    "Qwen3.5": "Qwen3.5-397B", "Qwen3-235B": "Qwen3-235B", "Kimi": "Kimi-K2.5", "GLM-5": "GLM-5",
}  # fmt: skip
_CONFIGS = {
    "DeepSeek-R1/V3": {"nvfp4": "nvidia--DeepSeek-V3.1-NVFP4", "": "deepseek-ai--DeepSeek-R1"},
    "MiniMax-M2.5": {"nvfp4": "nvidia--MiniMax-M2.5-NVFP4", "": "MiniMaxAI--MiniMax-M2.5"},
    "gpt-oss-120b": {"": "openai--gpt-oss-120b"},
    "Llama-3.1-70B": {"fp8": "nvidia--Llama-3.1-70B-Instruct-FP8", "": "meta-llama--Meta-Llama-3.1-70B"},
    "Llama-3.1-8B": {"": "meta-llama--Meta-Llama-3.1-8B"},
    "Qwen3-32B": {"": "Qwen--Qwen3-32B"},
    "Qwen3.5-397B": {"nvfp4": "nvidia--Qwen3.5-397B-A17B-NVFP4", "": "Qwen--Qwen3.5-397B-A17B"},
    "Qwen3-235B": {"fp8": "Qwen--Qwen3-235B-A22B-FP8", "fp8_block": "Qwen--Qwen3-235B-A22B-FP8"},
    "Kimi-K2.5": {"nvfp4": "nvidia--Kimi-K2.5-NVFP4", "": "moonshotai--Kimi-K2.5"},
    "GLM-5": {"nvfp4": "nvidia--GLM-5-NVFP4", "": "zai-org--GLM-5-FP8"},
}  # fmt: skip
_STORED = {"fp8", "mxfp4"}  # methods of checkpoints that are served as they are
_QUANTIZED: dict[str, Format] = {"fp8": FP8, "fp8_block": FP8_BLOCK128, "nvfp4": NVFP4}
_SPREAD_LENGTHS = re.compile(r"2026-04-06\.csv|2026-03-25\.csv|db-dump|qwen3\.5-397b-gap|kimi-k2\.5-gap")
# Memory for the fit's own count of sessions that fit; `setpoint plan` counts better, with the engine's rules.
_MEMORY_SHARE, _BESIDES_BYTES = 0.93, 4e9


@dataclass(frozen=True)
class Row:
    """One measured row that can be predicted.

    Attributes:
        family: Model, its checkpoints together.
        system: As the table names it.
        backend: Engine.
        placement: Tensor ranks, data-parallel ranks, experts whole or not.
        isl: Stated prompt length.
        osl: Stated answer length.
        sessions: Concurrency.
        campaign: Everything that is stated of the configuration and its measurement.
        drafts: Whether the model has a head that can draft.
        ttft_s: Measured.
        tpot_s: Measured.
    """

    family: str
    system: str
    backend: Backend
    precision: str
    placement: tuple[int, int, bool]
    isl: int
    osl: int
    sessions: int
    campaign: tuple[str, ...]
    drafts: bool
    ttft_s: float
    tpot_s: float
    shape: Shape
    spread: bool


@dataclass(frozen=True)
class Table:
    """All rows, as columns."""

    rows: tuple[Row, ...]
    left_out: dict[str, int]
    cases: Cases
    stacks: tuple[Stack, ...]
    of_row: np.ndarray
    ttft_s: np.ndarray
    tpot_s: np.ndarray

    def column(self, name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in self.rows])


def read(path: Path) -> Table:
    """The table in ``path``; model configurations are read from ``model_configs`` beside it."""
    raw = pl.read_csv(path, infer_schema_length=None)
    left_out: Counter[str] = Counter()
    rows: list[Row] = []
    seen: set[tuple[Any, ...]] = set()
    for record in raw.iter_rows(named=True):
        row = _row(record, path.parent / "model_configs")
        if isinstance(row, str):
            left_out[row] += 1
            continue
        key = (*configuration(row), f"{row.ttft_s:.3g}", f"{row.tpot_s:.4g}")
        if key in seen:
            left_out["the same measurement again"] += 1
            continue
        seen.add(key)
        rows.append(row)
    return _table(_with_variants(rows), dict(left_out))


def _row(record: dict[str, Any], configs: Path) -> Row | str:
    if record["mode"] == "disagg":
        return "disaggregated"
    found = re.search(r"silicon_concurrency=(\d+)", record["silicon_data_source"])
    sessions = int(found.group(1)) if found else record["batch_size"]
    if not sessions:
        return "no concurrency"
    placement = placement_of(record)
    if placement[0] * placement[1] not in (1, 2, 4, 8, 16):
        return "no placement: ranks of several replicas added up"
    family = next(name for word, name in FAMILIES.items() if word in record["model_path"])
    if record["system"] == "gb200":
        return "GB200 rows whose TPOT falls where concurrency grows"
    if family == "gpt-oss-120b" and record["system"] == "h100_sxm" and record["backend"] == "vllm" and sessions >= 512:
        return "client held to about 100 connections"
    precision = "nvfp4" if record["moe_quant_mode"] == "nvfp4" else record["gemm_quant_mode"] or "bf16"
    image = re.search(r"measured=(\d{4}-\d\d-\d\d)", record["silicon_data_source"])
    shape = shape_in(configs, family, precision, cache_bytes_of(record, precision))
    return Row(
        family=family,
        system=record["system"],
        backend=record["backend"],
        precision=precision,
        placement=placement,
        isl=record["isl"],
        osl=record["osl"],
        sessions=sessions,
        campaign=(
            family,
            record["system"],
            record["backend"],
            str(record["backend_version"]),
            image.group(1) if image else "",
            precision,
            str(placement),
        ),
        drafts=shape.draft_layers > 0 and record["backend"] != "vllm",
        ttft_s=record["silicon_ttft_ms"] / 1e3,
        tpot_s=record["silicon_tpot_ms"] / 1e3,
        shape=shape,
        spread=bool(_SPREAD_LENGTHS.search(record["silicon_data_source"])),
    )


def placement_of(record: dict[str, Any]) -> tuple[int, int, bool]:
    """Tensor ranks, data-parallel ranks and whether experts are whole, from columns with two conventions."""
    tp, dp = record["tp_size"] or 1, record["attention_dp_size"] or 1
    moe_tp, moe_ep = record["moe_tp_size"] or 1, record["moe_ep_size"] or 1
    if moe_tp == moe_ep > 1:
        return (1, moe_tp, True) if dp > 1 else (moe_tp, 1, True)
    if dp == tp > 1:
        return 1, dp, moe_ep > 1
    ranks = max(tp * dp, moe_tp * moe_ep)
    return tp, max(dp, ranks // tp), moe_ep > 1


def cache_bytes_of(record: dict[str, Any], precision: str) -> float:
    """FP8 for quantized models but where sessions that fit, solved from TTFT, say BF16."""
    hopper = record["system"].startswith("h")
    wide = record["backend"] == "sglang" or (record["backend"] == "vllm" and record["system"] == "h100_sxm")
    return 2.0 if precision in ("bf16", "int4_wo") or (hopper and wide) else 1.0


@cache
def spec_in(folder: Path, family: str, precision: str) -> ModelSpec:
    names = _CONFIGS[family]
    name = names.get(precision, names.get("", next(iter(names.values()))))
    apart = folder / f"{name}.hf_quant.json"
    spec = spec_from_config(
        (folder / f"{name}.json").read_bytes(),
        quantization=apart.read_bytes() if apart.exists() else None,
        name=family,
    )
    if precision in names or spec.precision.method in _STORED or precision not in _QUANTIZED:
        return spec
    return dataclasses.replace(
        spec, precision=Precision("assumed", BF16, _QUANTIZED[precision], exact={"lm_head": BF16})
    )


@cache
def shape_in(folder: Path, family: str, precision: str, cache_bytes: float) -> Shape:
    return shape_of(spec_in(folder, family, precision), cache_bytes=cache_bytes)


def configuration(row: Row) -> tuple[Any, ...]:
    return row.family, row.system, row.backend, row.precision, row.placement, row.isl, row.osl, row.sessions


def _with_variants(rows: list[Row]) -> list[Row]:
    """Splits a campaign in two where it measured one configuration twice with TPOT more than 15% apart."""

    slowest: dict[tuple[Any, ...], float] = {}
    for row in rows:
        slowest[configuration(row)] = max(slowest.get(configuration(row), 0.0), row.tpot_s)
    return [
        dataclasses.replace(
            row, campaign=(*row.campaign, "fast" if slowest[configuration(row)] > 1.15 * row.tpot_s else "")
        )
        for row in rows
    ]


def slots(shape: Shape, chip: Accelerator, split: Split, length: float) -> float:
    """Sessions of a mean length that fit, in the fit's own rough count."""
    per_token = shape.cache_bytes * sum(
        k.count * k.cache_elements * max(1 / split.tp, 1 / k.cache_heads) for k in shape.layers
    )
    held = shape.head.size / split.stage + sum(
        k.count
        * (k.attention.size / split.tp + k.replicated.size + (k.dense.size + k.experts * k.expert.size) / split.stage)
        for k in shape.layers
    )
    free = chip.usable_bytes.value * _MEMORY_SHARE - held - _BESIDES_BYTES
    return max(1.0, free / per_token / length) * split.dp


def _table(rows: list[Row], left_out: dict[str, int]) -> Table:
    chips = {name: find(full) for name, full in SYSTEMS.items()}
    decode, verify, prefill, numbers, stacks = [], [], [], [], []
    for row in rows:
        chip, tp, dp = chips[row.system], row.placement[0], row.placement[1]
        split = Split(tp, dp, expert=row.placement[2])
        share = 0.9 if row.spread else 1.0
        prompt, answer = row.isl * share, row.osl * share
        # TensorRT-LLM reserves room for the whole answer, the others take it as it grows.
        length = prompt + answer * (1.0 if row.backend == "trtllm" else 0.6)
        running = min(row.sessions, slots(row.shape, chip, split, length))
        batch = max(running / dp, 1.0)
        context = prompt + answer / 2

        decode.append(_decode(row, chip, split, batch, context))
        verify.append(_decode(row, chip, split, batch, context, 1 + DRAFTED) if row.drafts else decode[-1])
        prefill.append(step(row.shape, chip, split, tokens=prompt, sequences=1.0, context=prompt / 2, prefill=True))
        numbers.append((row.sessions, running, dp, answer, row.shape.draft_layers / row.shape.depth))
        stacks.append(stack_of(row.shape, chip, row.backend))
    sessions, running_, ranks, output, draft_share = np.array(numbers, dtype=float).T
    distinct = tuple(dict.fromkeys(stacks))
    one = np.ones(len(rows))
    return Table(
        rows=tuple(rows),
        left_out=left_out,
        cases=Cases(
            decode=stack(decode),
            verify=stack(verify),
            prefill=stack(prefill),
            chunks=one,
            sessions=sessions,
            running=running_,
            ranks=ranks,
            stages=one,
            output=output,
            drafting=0 * one,
            draft_share=draft_share,
        ),
        stacks=distinct,
        of_row=np.array([distinct.index(s) for s in stacks]),
        ttft_s=np.array([r.ttft_s for r in rows]),
        tpot_s=np.array([r.tpot_s for r in rows]),
    )


def _decode(
    row: Row, chip: Accelerator, split: Split, sequences: float, context: float, tokens_each: int = 1
) -> Work[float]:
    return step(
        row.shape,
        chip,
        split,
        tokens=sequences * tokens_each,
        sequences=sequences,
        context=context,
        prefill=False,
    )
