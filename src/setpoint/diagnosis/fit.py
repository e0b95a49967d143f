"""Linear fits with coefficients that cannot be negative, and outliers that cannot bend them."""

import numpy as np
from scipy.optimize import nnls

from setpoint.diagnosis.interval import RESAMPLES, Interval, spread_of
from setpoint.metrics.table import Floats

ROUNDS = 8
HUBER = 1.345  # of robust standard deviations: 95% efficient on normal errors (P. J. Huber, 1964)
MOST_ROWS = 1500


def fit(columns: Floats, values: Floats, seed: int = 0) -> tuple[list[Interval], float]:
    """Coefficients with 95% intervals by resampling rows, and the median relative residual.

    Least squares of relative errors, each reweighted by Huber's rule, coefficients at least zero.

    Args:
        columns: (rows, coefficients).
        values: One a row, above zero.
        seed: Of the resampling.
    """
    generator = np.random.default_rng(seed)
    if len(values) > MOST_ROWS:
        kept = generator.choice(len(values), MOST_ROWS, replace=False)
        columns, values = columns[kept], values[kept]
    scale = np.maximum(np.abs(columns).mean(axis=0), 1e-12)
    design = columns / scale
    best = _solve(design, values)
    draws = []
    for _ in range(RESAMPLES // 2):
        rows = generator.integers(0, len(values), len(values))
        draws.append(_solve(design[rows], values[rows], rounds=3))
    found = np.array(draws) / scale
    intervals = [spread_of(found[:, i], float(best[i] / scale[i]), len(values)) for i in range(len(scale))]
    residual = float(np.median(np.abs(design @ best - values) / np.maximum(values, 1e-9)))
    return intervals, residual


def _solve(design: Floats, values: Floats, rounds: int = ROUNDS) -> Floats:
    relative = 1.0 / (values + np.median(values))
    weights = relative
    solution: Floats = np.zeros(design.shape[1])
    for _ in range(rounds):
        solution, _ = nnls(design * weights[:, None], values * weights)
        errors = np.abs(design @ solution - values) * relative
        spread = max(1.4826 * float(np.median(errors)), 1e-6)
        weights = relative * np.sqrt(np.minimum(1.0, HUBER * spread / np.maximum(errors, 1e-12)))
    return solution
