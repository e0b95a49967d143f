"""Token distributions after pinned texts: a served model compared with itself, below the level of right and wrong.

Each pinned text is given up to a word, and one token is asked for with the log-probabilities of the likeliest: teacher
forcing by text, so that two targets answer the same question whatever they would have written. It is asked twice; what
differs between the two is the floor (batching and cache states change the last digits of sums). Two records of the
same texts give the divergence of two deployments.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import polars as pl
from scipy import stats

from setpoint.client.client import Client
from setpoint.metrics.table import Floats
from setpoint.quality.texts import TEXTS
from setpoint.records.quality import DistributionRow

TOP = 10
STRIDE = 4  # words between two positions
FIRST = 3  # words given at the first position
REPEATS = 2
TINY = 1e-9


class _Top(msgspec.Struct):
    logprob: float
    token: str = ""
    bytes: list[int] | None = None


class _Place(msgspec.Struct):
    top_logprobs: list[_Top]


class _Logprobs(msgspec.Struct):
    """Both shapes: a list of places (llama.cpp), or one mapping a place (vLLM, the older OpenAI form)."""

    content: list[_Place] | None = None
    top_logprobs: list[dict[str, float]] | None = None


class _Choice(msgspec.Struct):
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


def positions() -> Iterator[tuple[str, int, str]]:
    """Text id, words given, and the text up to there."""
    for name, text in TEXTS.items():
        words = text.split(" ")
        for count in range(FIRST, len(words), STRIDE):
            yield name, count, " ".join(words[:count])


async def take(client: Client, record: Callable[[Iterable[DistributionRow]], None]) -> str | None:
    """Takes every distribution twice; returns why there are none where the target does not offer them.

    Raises:
        TargetError: the target cannot be reached.
    """
    for repeat in range(REPEATS):
        for name, count, given in positions():
            body: dict[str, Any] = {"model": client.target.model, "prompt": given, "max_tokens": 1, "temperature": 0}
            answer = await client.fetch(
                "POST", "/v1/completions", msgspec.json.encode(body | {"logprobs": TOP}), timeout_s=60.0
            )
            if answer.status != 200:
                return f"no log-probabilities: /v1/completions answers HTTP {answer.status}"
            found = read_logprobs(answer.body)
            if not found:
                return "no log-probabilities in the answers of /v1/completions"
            record(
                DistributionRow(text=name, position=count, repeat=repeat, rank=rank, token=token, logprob=logprob)
                for rank, (token, logprob) in enumerate(found)
            )
    return None


def read_logprobs(body: bytes) -> list[tuple[str, float]]:
    """Digest and log-probability of the likeliest first tokens, in order; empty when the answer has none."""
    try:
        choices = msgspec.json.decode(body, type=_Completion).choices
    except msgspec.DecodeError:
        return []
    logprobs = choices[0].logprobs if choices else None
    if logprobs is None:
        return []
    if logprobs.content:
        found = [(bytes(t.bytes) if t.bytes else t.token.encode(), t.logprob) for t in logprobs.content[0].top_logprobs]
    elif logprobs.top_logprobs:
        found = [(token.encode(), logprob) for token, logprob in logprobs.top_logprobs[0].items()]
    else:
        return []
    found.sort(key=lambda pair: -pair[1])
    return [(sha256(token).hexdigest()[:16], logprob) for token, logprob in found]


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far two sets of distributions are apart.

    Attributes:
        positions: Places compared.
        mean_kl: Mean Kullback-Leibler divergence of the candidate from the base, nats. A lower bound: tokens that are
            not among the likeliest of both are one bucket.
        low: Lower end of the 95% interval of the mean, texts as clusters.
        high: Upper end.
        p50_kl: Median.
        p95_kl: 95th percentile of the places compared.
        max_kl: Largest.
        same_top: Share of places with the same likeliest token.
    """

    positions: int
    mean_kl: float
    low: float
    high: float
    p50_kl: float
    p95_kl: float
    max_kl: float
    same_top: float


def floor_of(rows: pl.DataFrame) -> Divergence | None:
    """A target against itself: repeat 1 against repeat 0. None without both."""
    return divergence(rows.filter(pl.col("repeat") == 0), rows.filter(pl.col("repeat") == 1))


def divergence(base: pl.DataFrame, candidate: pl.DataFrame) -> Divergence | None:
    """The divergence of one repeat's distributions from another's; None when no place is in both."""
    left, right = _by_place(base), _by_place(candidate)
    places = sorted(left.keys() & right.keys())
    if not places:
        return None
    found = [_kl(left[p], right[p]) for p in places]
    same = [next(iter(left[p])) == next(iter(right[p])) for p in places]
    texts = sorted({name for name, _ in places})
    sums = np.array([(sum(k for k, p in zip(found, places, strict=True) if p[0] == t)) for t in texts])
    counts = np.array([sum(1 for p in places if p[0] == t) for t in texts])
    low, high = _ratio_interval(sums, counts)
    return Divergence(
        positions=len(places),
        mean_kl=float(np.mean(found)),
        low=low,
        high=high,
        p50_kl=float(np.quantile(found, 0.5)),
        p95_kl=float(np.quantile(found, 0.95)),
        max_kl=max(found),
        same_top=float(np.mean(same)),
    )


def _by_place(rows: pl.DataFrame) -> dict[tuple[str, int], dict[str, float]]:
    """Text and position → token → logprob, likeliest first."""
    out: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows.sort("rank").iter_rows(named=True):
        out.setdefault((row["text"], row["position"]), {})[row["token"]] = row["logprob"]
    return out


def _kl(base: dict[str, float], candidate: dict[str, float]) -> float:
    common = [token for token in base if token in candidate]
    p = np.exp([base[t] for t in common])
    q = np.exp([candidate[t] for t in common])
    p = np.maximum(np.append(p, 1 - p.sum()), TINY)
    q = np.maximum(np.append(q, 1 - q.sum()), TINY)
    p, q = p / p.sum(), q / q.sum()
    return max(0.0, float(np.sum(p * np.log(p / q))))


def _ratio_interval(sums: Floats, counts: Floats) -> tuple[float, float]:
    """Bootstrap over texts of the mean over places."""
    if len(sums) < 2:
        mean = float(sums.sum() / counts.sum())
        return mean, mean
    found = stats.bootstrap(
        (sums, counts),
        lambda s, n, axis=-1: s.sum(axis=axis) / n.sum(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)
