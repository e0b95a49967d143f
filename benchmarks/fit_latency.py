"""Fits the terms of the latency estimate and measures it on models and systems that the fit has not seen.

    python -m benchmarks.fit_latency CSV        writes coefficients.json of the package and docs/accuracy.md

CSV is the table of measured rows; ``model_configs`` is read from beside it. Takes a few minutes on one core.
"""

import hashlib
import json
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.latency_pools import read_pools
from benchmarks.latency_report import report
from benchmarks.latency_rows import Table, configuration, read
from scipy.optimize import least_squares

from setpoint.sizing.latency.service import DRAFTED, Times, decode_s, times
from setpoint.sizing.latency.terms import BACKENDS, TERMS
from setpoint.sizing.latency.tuned import tuned_rows

ROOT = Path(__file__).parent.parent
COEFFICIENTS = ROOT / "src/setpoint/sizing/latency/coefficients.json"
ACCURACY = ROOT / "docs/accuracy.md"

PRIOR_WEIGHT = 12.0  # rows are no independent evidence: a campaign shares its engine, image and flags
TPOT_SCALE, TTFT_SCALE, TTFT_WEIGHT = 0.1, 0.2, 0.5
LABEL_GAIN = 0.03
COVERAGE = 0.8
TAILS = (0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02)

NAMES = tuple(TERMS)
PRIOR = np.log([t.prior for t in TERMS.values()])
SPREAD = np.array([t.spread for t in TERMS.values()])
LIMIT = np.array([np.inf if t.limit is None else np.log(t.limit) for t in TERMS.values()])


@dataclass(frozen=True)
class Errors:
    """Of one protocol: predictions for all rows."""

    tpot_s: np.ndarray
    ttft_s: np.ndarray
    drafting: np.ndarray


def predict(table: Table, x: np.ndarray, drafting: np.ndarray) -> Times:
    cases = replace(table.cases, drafting=drafting.astype(float))
    return times(cases, tuned_rows(dict(zip(NAMES, np.exp(x), strict=True)), table.stacks, table.of_row))


def weights(table: Table) -> np.ndarray:
    """Rows of one model, system, engine and precision count together by the root of their number."""
    groups = [(r.family, r.system, r.backend, r.precision) for r in table.rows]
    count = Counter(groups)
    found = np.array([count[g] ** -0.5 for g in groups])
    return np.asarray(found / found.mean())


def fit(table: Table, among: np.ndarray, drafting: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Logarithms of the terms: robust least squares of log errors, held by the prior."""
    root = np.sqrt(weights(table)[among])

    def residuals(x: np.ndarray) -> np.ndarray:
        found = predict(table, x, drafting)
        tpot = root * np.log(found.tpot_s / table.tpot_s)[among] / TPOT_SCALE
        ttft = TTFT_WEIGHT * root * np.log(found.ttft_s / table.ttft_s)[among] / TTFT_SCALE
        return np.concatenate([tpot, ttft, PRIOR_WEIGHT * (x - PRIOR) / SPREAD])

    begin = np.minimum(start, LIMIT - 1e-3)
    return np.asarray(
        least_squares(residuals, begin, loss="soft_l1", max_nfev=60, bounds=(np.full(len(begin), -np.inf), LIMIT)).x
    )


def label(table: Table, x: np.ndarray) -> np.ndarray:
    """Which campaigns drafted: one bit each, set where it brings the campaign's TPOT clearly nearer."""
    can = table.column("drafts").astype(bool)
    without = np.abs(np.log(predict(table, x, np.zeros(len(can))).tpot_s / table.tpot_s))
    drafted = np.abs(np.log(predict(table, x, can).tpot_s / table.tpot_s))
    members: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(table.rows):
        if row.drafts:
            members.setdefault(row.campaign, []).append(index)
    found = np.zeros(len(can), dtype=bool)
    for indices in members.values():
        found[indices] = drafted[indices].mean() < without[indices].mean() - LABEL_GAIN
    return found


def fit_and_label(table: Table, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A fit on some rows, and its labels for all."""
    drafting = np.zeros(len(among), dtype=bool)
    x = fit(table, among, drafting, PRIOR)
    for _ in range(3):
        before, drafting = drafting, label(table, x)
        x = fit(table, among, drafting, x)
        if (before == drafting)[among].all():
            break
    return x, label(table, x)


def held_out(table: Table, by: np.ndarray) -> tuple[Errors, Errors]:
    """Each row predicted by a fit on the other groups: with inferred drafting, and with none."""
    shape = len(table.rows)
    inferred = Errors(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool))
    stated = Errors(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool))
    for group in sorted(set(by)):
        out = by == group
        x, drafting = fit_and_label(table, ~out)
        for kept, bits in ((inferred, drafting), (stated, np.zeros(shape, dtype=bool))):
            found = predict(table, x, bits)
            kept.tpot_s[out], kept.ttft_s[out], kept.drafting[out] = found.tpot_s[out], found.ttft_s[out], bits[out]
        print(f"  without {group}: {out.sum()} rows", file=sys.stderr)
    return inferred, stated


def summary(estimated: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    off = np.abs(estimated / measured - 1)
    return {
        "median": round(float(np.median(off)), 4),
        "p90": round(float(np.quantile(off, 0.9)), 4),
        "bias": round(float(np.median(estimated / measured)), 4),
        "rows": len(off),
    }


def quantiles(ratio: np.ndarray, row_weights: np.ndarray, tail: float) -> tuple[float, float]:
    order = np.argsort(ratio)
    share = (np.cumsum(row_weights[order]) - row_weights[order] / 2) / row_weights.sum()
    return float(np.interp(tail, share, ratio[order])), float(np.interp(1 - tail, share, ratio[order]))


def ranges(
    table: Table, errors: Errors, among: np.ndarray, tails: dict[str, float]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Measured over estimated between two tails, by metric and engine; families count by the root of their rows."""
    backend, heavy = table.column("backend"), weights(table)
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for metric, estimated, measured in (
        ("tpot", errors.tpot_s, table.tpot_s),
        ("ttft", errors.ttft_s, table.ttft_s),
    ):
        found[metric] = {}
        for name in BACKENDS:
            chosen = among & (backend == name)
            low, high = quantiles((measured / estimated)[chosen], heavy[chosen], tails[metric])
            found[metric][name] = (round(min(low, 1.0), 4), round(max(high, 1.0), 4))
    return found


def tails_for(table: Table, errors: Errors) -> dict[str, float]:
    """The widest tails with which ranges made without a family still hold the coverage, families counting alike."""
    found = {}
    for metric in ("tpot", "ttft"):
        for tail in TAILS:
            found[metric] = tail
            held = coverage(table, errors, {"tpot": tail, "ttft": tail})
            if np.mean([one[metric] for one in held.values()]) >= COVERAGE:
                break
    return found


def coverage(table: Table, errors: Errors, tails: dict[str, float]) -> dict[str, dict[str, float]]:
    """Share of each family's rows inside ranges made without that family."""
    family, backend = table.column("family"), table.column("backend")
    found: dict[str, dict[str, float]] = {}
    for name in sorted(set(family)):
        out = family == name
        without = ranges(table, errors, ~out, tails)
        found[name] = {"rows": int(out.sum())}
        for metric, estimated, measured in (
            ("tpot", errors.tpot_s, table.tpot_s),
            ("ttft", errors.ttft_s, table.ttft_s),
        ):
            ratio = measured / estimated
            inside = [without[metric][b][0] <= r <= without[metric][b][1] for r, b in zip(ratio, backend, strict=True)]
            found[name][metric] = round(float(np.mean(np.array(inside)[out])), 3)
    return found


def repeats(table: Table, drafting: np.ndarray) -> dict[str, float]:
    """How far repeated measurements of one configuration, drafting alike, are apart: the floor of any estimate."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, row in enumerate(table.rows):
        groups.setdefault((*configuration(row), bool(drafting[index])), []).append(index)
    found: dict[str, float] = {"configurations": sum(len(g) > 1 for g in groups.values())}
    for metric, measured in (("tpot", table.tpot_s), ("ttft", table.ttft_s)):
        off = [abs(measured[i] / np.median(measured[g]) - 1) for g in groups.values() if len(g) > 1 for i in g]
        found |= {
            f"{metric}_median": round(float(np.median(off)), 4),
            f"{metric}_p90": round(float(np.quantile(off, 0.9)), 4),
        }
    return found


def pools(path: Path, values: dict[str, float]) -> dict[str, Any]:
    """TPOT of the decode pools of disaggregated deployments, which are in no fit: as stated, and the nearer of the
    estimates with and without drafting."""
    found = read_pools(path)
    distinct = tuple(dict.fromkeys(found.stacks))
    terms = tuned_rows(values, distinct, np.array([distinct.index(s) for s in found.stacks]))
    plain = decode_s(found.decode, terms)
    drafted = decode_s(found.verify, terms) * (1 + DRAFTED * found.draft_share) / terms.drafted
    nearer = np.where(
        found.drafts & (np.abs(np.log(drafted / found.tpot_s)) < np.abs(np.log(plain / found.tpot_s))), drafted, plain
    )
    return {"stated": summary(plain, found.tpot_s), "nearer": summary(nearer, found.tpot_s)}


def main(path: Path) -> None:
    table = read(path)
    everything = np.ones(len(table.rows), dtype=bool)
    x, drafting = fit_and_label(table, everything)
    found = predict(table, x, drafting)
    family, family_stated = held_out(table, table.column("family"))
    system, system_stated = held_out(table, table.column("system"))

    def both(errors: Errors) -> dict[str, Any]:
        return {"tpot": summary(errors.tpot_s, table.tpot_s), "ttft": summary(errors.ttft_s, table.ttft_s)}

    tails = tails_for(table, family)
    within = coverage(table, family, tails)
    measured = {
        "in_sample": both(Errors(found.tpot_s, found.ttft_s, drafting)),
        "held_out_model": both(family),
        "held_out_model_drafting_unknown": both(family_stated),
        "held_out_system": both(system),
        "held_out_system_drafting_unknown": both(system_stated),
        "coverage": within,
        "tails": tails,
        "repeats": repeats(table, drafting),
        "decode_pools": pools(path, dict(zip(NAMES, np.exp(x), strict=True))),
        "rows": len(table.rows),
        "left_out": table.left_out,
    }
    content = {
        "made_by": "benchmarks/fit_latency.py",
        "source": path.name,
        "source_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "terms": {name: float(f"{np.exp(v):.6g}") for name, v in zip(NAMES, x, strict=True)},
        "coverage": COVERAGE,
        "ranges": ranges(table, family, everything, tails),
        "measured": measured,
        "drafting": sorted(
            " ".join(c) for c in {r.campaign for r, bit in zip(table.rows, drafting, strict=True) if bit}
        ),
    }
    COEFFICIENTS.write_text(json.dumps(content, indent=1) + "\n")
    ACCURACY.write_text(report(table, content, family, system))
    print(json.dumps({k: v for k, v in measured.items() if k != "left_out"}, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.fit_latency CSV")
    main(Path(sys.argv[1]))
