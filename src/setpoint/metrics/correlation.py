"""How many independent observations a sample is worth.

Neighbouring exchanges share a queue and the turns of a session share its history, so ``n`` exchanges say less than
``n`` independent ones. The *design effect* is the variance of the observed share divided by that of as many
independent observations; ``n / design effect`` is the effective sample size (L. Kish, Survey Sampling, 1965; for
proportions J. N. K. Rao and A. J. Scott, Biometrics 48, 1992).

Two kinds of neighbourhood are added, what belongs to both is subtracted once (two-way clustering, A. C. Cameron,
J. B. Gelbach and D. L. Miller, Journal of Business & Economic Statistics 29, 2011):

* time: the autocorrelation of the residuals in order of schedule, summed over lags by the initial positive sequence
  (C. J. Geyer, Statistical Science 7, 1992, section 3.3);
* session: residuals summed within each session; with few sessions the normal quantile is widened to Student's
  (E. L. Korn and B. I. Graubard, Survey Methodology 24, 1998).
"""

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri, stdtrit

from setpoint.metrics.table import Floats, Ints, Mask

LONG = 200_000


def design_effect(inside: Floats | Ints, total: Floats | Ints, session: Ints) -> float:
    """Variance of ``sum(inside) / sum(total)`` relative to as many independent observations; at least 1.

    Args:
        inside: Observations within the limit, one entry an exchange, in order of schedule.
        total: Observations of that exchange (1 for a latency, the number of gaps for ITL).
        session: Session of each exchange.

    When nothing or everything is within, no correlation can be seen and the result is 1.
    """
    observations = float(np.sum(total))
    share = float(np.sum(inside)) / observations if observations else 0.0
    if not 0.0 < share < 1.0:
        return 1.0
    residual = np.asarray(inside - share * total, dtype=np.float64)
    own = float(residual @ residual)
    in_time = own * autocorrelation_time(residual)
    if np.all(session[1:] > session[:-1]):  # each exchange is a session of its own
        sums = residual
    else:
        place = np.unique(session, return_inverse=True)[1]
        sums = np.bincount(place, weights=residual).astype(np.float64)
    in_session, widening = own, 1.0
    if len(sums) < len(residual):  # some session has several turns
        if len(sums) == 1:
            return observations  # one session is one observation
        in_session = max(own, float(sums @ sums) * len(sums) / (len(sums) - 1))
        widening = float(stdtrit(len(sums) - 1, 0.975) / ndtri(0.975)) ** 2
    variance = in_time + in_session - own
    return max(1.0, variance / (observations * share * (1 - share)) * widening)


def design_effect_of_limit(values: Floats, limit: float, quantile: float, session: Ints) -> float:
    """The larger of the design effects of "at most ``limit``" and "at most the sample's own ``quantile``".

    Args:
        values: One latency an answered exchange, in order of schedule, without NaN.
        limit: The promised limit, in the values' unit.
        quantile: The promised quantile.
        session: Session of each exchange.
    """
    if not len(values):
        return 1.0
    one = np.ones(len(values))
    own = float(np.quantile(values, quantile, method="inverted_cdf"))
    return max(design_effect((values <= bound).astype(np.int64), one, session) for bound in (limit, own))


def autocorrelation_time(series: Floats) -> float:
    """Integrated autocorrelation time ``1 + 2 Σ r(lag)`` by Geyer's initial positive sequence; at least 1.

    Sums of neighbouring pairs of autocorrelations are added while they are positive. A constant series has none.
    """
    n = len(series)
    centred = series - series.mean() if n else series
    if n < 3 or not np.any(centred):
        return 1.0
    size = next_fast_len(2 * n, real=True)
    # Of a long series single precision is a thousand times finer than the noise of sampling, and half as large.
    spectrum = rfft(centred if n < LONG else centred.astype(np.float32), size)
    power = np.square(spectrum.real)
    power += np.square(spectrum.imag)
    del spectrum  # as large as the series, four times over
    covariance = irfft(power, size)[:n]
    correlation = covariance / covariance[0]
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    last = int(negative[0]) if len(negative) else len(pairs)
    return max(1.0, 2.0 * float(pairs[:last].sum()) - 1.0)


def longest_burst(failed: Mask) -> float:
    """Length of the longest unbroken run of at least five failures in order of schedule; 1 without one.

    Five failures in a row are one event (an outage), not five observations; fewer occur by chance. Adding a failure
    anywhere never makes this smaller.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], failed, [False]]).astype(np.int8)))
    longest = int((edges[1::2] - edges[::2]).max(initial=0))
    return float(longest) if longest >= 5 else 1.0
