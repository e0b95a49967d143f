"""Planted bottlenecks: a fake engine's script and the traffic under which its one fault breaks a promise.

What a diagnosis must name, and must not name, is known for each of them.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Planted:
    """One bottleneck, or several at once.

    Attributes:
        name: Of the plant.
        causes: Hypotheses that are true; the first is the largest. Empty: nothing is wrong.
        script: Members of ``setpoint.testing.script.Script``; of a real engine its flags.
        traffic: Members of the card's traffic, over the defaults of ``card``.
        promises: Of the card.
        proxy_s: Delay of a slow proxy in front of the engine; 0 has none.
        hogs: Processes that use a core each beside the engine.
        freeze_s: The engine's process is stopped so long after the first send, and for how long; None leaves it alone.
        engine: Engine that is started.
        null: The target is a null server, and one client process sends more than it can.
    """

    name: str
    causes: tuple[str, ...]
    script: dict[str, Any]
    traffic: dict[str, Any] = field(default_factory=dict)
    promises: tuple[str, ...] = ("p90 ttft <= 150 ms", "answered >= 95%")
    proxy_s: float = 0.0
    hogs: int = 0
    freeze_s: tuple[float, float] | None = None
    engine: str = "fake"
    null: bool = False

    def card(self) -> dict[str, Any]:
        """The card as a mapping."""
        traffic: dict[str, Any] = {
            "class": "interactive",
            "arrivals": {"process": "poisson", "rate": "6/s"},
            "prompt_tokens": {"min": 60, "p50": 100, "max": 160},
            "output_tokens": 16,
            "duration": "6s",
            "warmup_requests": 2,
        }
        return {
            "apiVersion": "setpoint/v1",
            "kind": "Workload",
            "name": self.name.replace("_", "-"),
            "traffic": traffic | self.traffic,
            "promises": list(self.promises),
        }


_USERS = {"arrivals": {"process": "closed", "users": 8}}
_PACE = ("p90 ttft <= 2 s", "p90 tpot <= 30 ms")
_GPU = {"sm_active": 0.9, "dram_active": 0.85}

PLANTED: dict[str, Planted] = {
    p.name: p
    for p in (
        Planted("healthy", (), {"slots": 16, "decode_s": 0.01, "prefill_token_s": 0.0002}),
        Planted("client", ("client",), {}, {"arrivals": {"process": "constant", "rate": "15000/s"}, "duration": "1s"}, null=True),
        Planted(
            "neighbour", ("neighbour",), {"step_cpu_s": 0.012, "decode_s": 0.001},
            {"arrivals": {"process": "closed", "users": 1}, "output_tokens": 24}, ("p90 tpot <= 20 ms",), hogs=6,
        ),
        Planted("wedged", ("wedged",), {"slots": 8, "wedge_after": 12}),
        Planted("failures", ("failures",), {"slots": 16, "faults": [{"kind": "fail", "first": 6, "every": 3}]}),
        Planted("gateway", ("gateway",), {"slots": 16}, proxy_s=0.3),
        Planted("queueing", ("queueing",), {"slots": 2, "decode_s": 0.025}),
        Planted("scheduler", ("scheduler",), {"slots": 32, "decode_s": 0.025, "kv_tokens": 1200, "admit_usage": 0.25}),
        Planted(
            "kv_pressure", ("kv_pressure",), {"slots": 16, "decode_s": 0.008, "prefill_token_s": 0.002, "kv_tokens": 900},
            _USERS | {"output_tokens": 80}, ("p90 ttft <= 2 s", "p90 tpot <= 12 ms"),
        ),
        Planted("prefill", ("prefill",), {"slots": 32, "prefill_token_s": 0.004}),
        Planted(
            "prefix_cache", ("prefix_cache",), {"slots": 32, "prefill_token_s": 0.001},
            {"prompt_tokens": {"min": 320, "max": 380}, "prefix": {"tokens": 300}},
        ),
        Planted("host", ("host",), {"slots": 32, "tokenize_token_s": 0.002, "sm_active": 0.15}, {"arrivals": {"process": "poisson", "rate": "2/s"}, "duration": "8s"}),
        Planted("reasoning", ("reasoning",), {"slots": 32, "decode_s": 0.02, "reasoning_tokens": 20, "output_tokens": 40}, {"output_tokens": 40}),
        Planted("cold_start", ("cold_start",), {"slots": 32, "cold_requests": 18, "cold_s": 0.6}),
        Planted(
            "interference", ("interference",), {"slots": 32, "decode_s": 0.01, "prefill_token_s": 0.002, "prefill_stops_decode": True},
            {"arrivals": {"process": "poisson", "rate": "1.5/s"}, "prompt_tokens": {"min": 40, "p50": 150, "max": 500}, "output_tokens": 60, "duration": "10s"},
            ("p90 ttft <= 5 s", "p90 tpot <= 18 ms"),
        ),
        Planted("batch", ("batch",), {"slots": 16, "decode_s": 0.008, "decode_stream_s": 0.006}, _USERS | {"output_tokens": 24}, _PACE),
        Planted("decode_bandwidth", ("decode_bandwidth",), {"slots": 32, "decode_s": 0.06, **_GPU}, {"arrivals": {"process": "poisson", "rate": "3/s"}}, _PACE),
        Planted(
            "speculation", ("speculation",), {"slots": 32, "decode_s": 0.015, "draft_tokens": 5, "draft_token_s": 0.006, "acceptance": 0.08},
            {"arrivals": {"process": "poisson", "rate": "3/s"}}, _PACE,
        ),
        Planted("launch_bound", ("launch_bound",), {"slots": 32, "decode_s": 0.06, "sm_active": 0.2, "dram_active": 0.15}, {"arrivals": {"process": "poisson", "rate": "3/s"}}, _PACE),
        Planted(
            "interconnect", ("interconnect",), {"slots": 32, "decode_s": 0.06, "sm_active": 0.95, "dram_active": 0.2, "tensor_parallel_size": 2},
            {"arrivals": {"process": "poisson", "rate": "3/s"}}, _PACE,
        ),
        Planted(
            "prefill_and_reasoning", ("prefill", "reasoning"),
            {"slots": 32, "decode_s": 0.02, "prefill_token_s": 0.003, "reasoning_tokens": 10, "output_tokens": 24}, {"output_tokens": 24},
        ),
        Planted(
            "queueing_and_batch", ("queueing", "batch"), {"slots": 6, "decode_s": 0.008, "decode_stream_s": 0.008},
            {"arrivals": {"process": "closed", "users": 12}, "output_tokens": 16}, ("p90 ttft <= 150 ms", "p90 tpot <= 30 ms"),
        ),
    )
}  # fmt: skip
