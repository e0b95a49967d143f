"""Follow the cached prefix while the load allows it; spread cold prefixes so that workers agree without talking.

1. A replica's score is its queued prefill tokens plus what it would have to compute of this prompt.
2. Among replicas within ``window_tokens`` of the least score, the longest cached prefix wins, then the least score.
3. A prefix that none of them holds goes by rendezvous hashing (Thaler and Ravishankar 1998), which needs no shared
   state, with bounded load (Mirrokni, Thorup and Zadimoghaddam 2018): none takes it above ``bound`` times the mean.
4. Where the load of a candidate is stale, the better of two random ones is taken (Mitzenmacher 2001): following an old
   minimum would send everything to one replica.
"""

import math
import random
from collections.abc import Sequence
from functools import cache

import xxhash

from setpoint.gateway.policies.policy import Candidate, Prompt


class PrefixAware:
    """Implements ``Policy``.

    Args:
        window_tokens: Load above the least at which a cached prefix still counts.
        bound: Of the load for cold prefixes, as a multiple of the mean.
        seed: Of the random choices; any unless given.
    """

    def __init__(self, *, window_tokens: int, bound: float, seed: int | None = None) -> None:
        self._window = window_tokens
        self._bound = bound
        self._random = random.Random(seed)

    def choose(self, candidates: Sequence[Candidate], prompt: Prompt) -> int:
        """See the module."""
        if len(candidates) == 1:
            return 0
        scores, warm = [], False
        for c in candidates:
            if c.stale:
                pair = self._random.sample(range(len(candidates)), 2)
                return min(pair, key=lambda i: candidates[i].in_flight)
            cached = c.cached_tokens
            warm = warm or cached > 0
            scores.append(c.queued_tokens + (prompt.tokens - cached if cached < prompt.tokens else 0))
        ceiling = min(scores) + self._window
        near = [i for i, score in enumerate(scores) if score <= ceiling]
        if warm:
            warmest = max(near, key=lambda i: (candidates[i].cached_tokens, -scores[i], -candidates[i].in_flight))
            if candidates[warmest].cached_tokens:
                return warmest
        return self._cold(candidates, near, prompt.key)

    def _cold(self, candidates: Sequence[Candidate], near: list[int], key: int) -> int:
        total, weights = 1, 0.0
        for c in candidates:
            total += c.in_flight
            weights += c.weight
        ranked = [(_digest(_encoded(candidates[i].name), key), i) for i in near]
        ranked.sort(reverse=True)
        for _, i in ranked:
            if candidates[i].in_flight + 1 <= math.ceil(self._bound * total * candidates[i].weight / weights):
                return i
        return min(near, key=lambda i: candidates[i].in_flight)


_digest = xxhash.xxh3_64_intdigest
_encoded = cache(str.encode)  # of the replicas' names
