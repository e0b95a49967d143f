"""Decode pools of disaggregated deployments whose worker counts are stated: rows for a check that no fit has seen."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from benchmarks.latency_rows import FAMILIES, SYSTEMS, cache_bytes_of, shape_in

from setpoint.hardware import find
from setpoint.sizing.latency.service import DRAFTED
from setpoint.sizing.latency.tuned import Stack, stack_of
from setpoint.sizing.latency.work import FloatArray, Split, Work, stack, step


@dataclass(frozen=True)
class Pools:
    """Columns; ``draft_share`` and ``drafts`` as in ``service.Cases`` and ``latency_rows.Row``."""

    decode: Work[FloatArray]
    verify: Work[FloatArray]
    stacks: tuple[Stack, ...]
    draft_share: np.ndarray
    drafts: np.ndarray
    tpot_s: np.ndarray


def read_pools(path: Path) -> Pools:
    raw = pl.read_csv(path, infer_schema_length=None).filter(
        (pl.col("mode") == "disagg") & pl.col("decode_batch_size").is_not_null()
    )
    decode: list[Work[float]] = []
    verify: list[Work[float]] = []
    stacks, numbers = [], []
    for record in raw.iter_rows(named=True):
        family = next(name for word, name in FAMILIES.items() if word in record["model_path"])
        precision = "nvfp4" if record["moe_quant_mode"] == "nvfp4" else record["gemm_quant_mode"] or "bf16"
        shape = shape_in(path.parent / "model_configs", family, precision, cache_bytes_of(record, precision))
        chip = find(SYSTEMS[record["system"]])
        split = Split(
            record["decode_tp_size"] or 1,
            record["decode_attention_dp_size"] or 1,
            expert=(record["decode_moe_ep_size"] or 1) > 1,
        )
        context = 0.9 * (record["isl"] + record["osl"] / 2)
        for kept, factor in ((decode, 1), (verify, 1 + DRAFTED)):
            batch = float(record["decode_batch_size"])
            kept.append(
                step(shape, chip, split, tokens=batch * factor, sequences=batch, context=context, prefill=False)
            )
        stacks.append(stack_of(shape, chip, record["backend"]))
        numbers.append((shape.draft_layers / shape.depth, shape.draft_layers > 0, record["silicon_tpot_ms"] / 1e3))
    share, drafts, tpot = np.array(numbers, dtype=float).T
    return Pools(stack(decode), stack(verify), tuple(stacks), share, drafts > 0, tpot)
