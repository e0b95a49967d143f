"""Bottlenecks planted on a real engine: llama.cpp with the embedded model, on the CPU.

Lengths and limits are those of a 135M model on one thread of a small machine (prompt tokens at some milliseconds each,
decode at some tens): far enough from both sides of each limit that a machine twice as fast or slow keeps the verdict.
"""

from typing import Any

from setpoint.testing.planted import Planted

_ONE_USER = {"process": "closed", "users": 1}
_FOUR_USERS = {"process": "closed", "users": 4}
_SMALL: dict[str, Any] = {"prompt_tokens": {"min": 40, "p50": 50, "max": 70}, "output_tokens": 16, "duration": "20s"}


def _real(
    name: str, causes: tuple[str, ...], traffic: dict[str, Any], promises: tuple[str, ...], **more: Any
) -> Planted:
    return Planted(name, causes, more.pop("flags", {}), _SMALL | traffic, promises, engine="llamacpp", **more)


PLANTED_REAL: dict[str, Planted] = {
    p.name: p
    for p in (
        _real("nothing", (), {"arrivals": _ONE_USER}, ("p90 ttft <= 5 s", "p90 tpot <= 1 s", "answered >= 95%")),
        _real("one_slot", ("queueing",), {"arrivals": _FOUR_USERS}, ("p90 ttft <= 700 ms",), flags={"n_parallel": "1"}),
        _real(
            "tiny_kv", ("kv_pressure",), {"class": "batch", "arrivals": _FOUR_USERS, "output_tokens": 64}, ("answered >= 95%",),
            flags={"n_ctx": "256", "kv_unified": "true"},
        ),
        _real(
            "cache_off", ("prefix_cache",),
            {"arrivals": _ONE_USER, "prompt_tokens": {"min": 240, "max": 280}, "prefix": {"tokens": 220}, "output_tokens": 4},
            ("p90 ttft <= 600 ms",), flags={"cache_prompt": "false", "cache_ram_mib": "0"},
        ),
        _real("hog", ("neighbour",), {"arrivals": _ONE_USER}, ("p90 tpot <= 25 ms",), hogs=8),
        _real("slow_proxy", ("gateway",), {"arrivals": _ONE_USER, "output_tokens": 4}, ("p90 ttft <= 700 ms",), proxy_s=1.5),
        _real(
            "long_prompts", ("interference",),
            {
                # Answers of many lengths: of one length, the users would begin and end together, and no prompt would
                # ever be computed beside a stream.
                "arrivals": {"process": "closed", "users": 2}, "output_tokens": {"min": 24, "max": 72}, "duration": "30s",
                "prompt_tokens": {"min": 200, "p50": 350, "max": 600},
            },
            ("p90 tpot <= 80 ms",),
        ),
        _real(
            "frozen", ("wedged",),
            {"arrivals": {"process": "poisson", "rate": "0.8/s"}, "output_tokens": 8}, ("p90 ttft <= 2.5 s",), freeze_s=(5.0, 9.0),
        ),
        _real(
            "one_slot_and_proxy", ("queueing", "gateway"), {"arrivals": {"process": "closed", "users": 6}}, ("p90 ttft <= 700 ms",),
            flags={"n_parallel": "1"}, proxy_s=0.9,
        ),
    )
}  # fmt: skip
