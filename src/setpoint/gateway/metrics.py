"""Prometheus metrics of the gateway: what ended comes from the journals, what is under way from the shared memory."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from setpoint.gateway import plane
from setpoint.gateway.journal import ITL_BOUNDS_S, Ended
from setpoint.gateway.replica import STATE_NAMES, Replica
from setpoint.gateway.shared import SharedTable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_E2E = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class Metrics:
    """Counts exchanges; labels are names from the configuration and words of ours, never what a client wrote.

    Args:
        live: Collects what is under way.
    """

    def __init__(self, live: Collector) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.registry.register(live)

        def counter(name: str, text: str, *labels: str) -> Callable[..., Counter]:
            return cache(Counter(f"setpoint_gateway_{name}", text, labels, registry=self.registry).labels)

        self._exchanges = counter("exchanges", "Exchanges by how they ended.", "model", "tenant", "outcome")
        self._refusals = counter("refusals", "Requests that got no answer, by reason.", "reason")
        self._tokens = counter("tokens", "Tokens by kind.", "model", "tenant", "kind")
        self._predicted = counter("prefix_predicted_tokens", "Cached tokens that the router expected.", "model")
        self._cached = counter("prefix_cached_tokens", "Cached tokens that the engines reported.", "model")
        self._retries = counter("retries", "Attempts beyond the first.", "model")
        self._faults = counter("replica_faults", "Exchanges that an engine failed.", "model", "replica", "outcome")
        self._tools = counter("tool_call_failures", "Answers whose tool calls are unusable.", "model", "replica")
        self._ttft = _Histogram("ttft_seconds", "Arrival to first visible delta.", _TTFT)
        self._e2e = _Histogram("e2e_seconds", "Arrival to end.", _E2E)
        self._queue = _Histogram("queue_seconds", "Waiting for a replica.", _TTFT)
        self._gaps = _Histogram("itl_seconds", "Gaps between visible deltas of one answer.", ITL_BOUNDS_S)
        for one in (self._ttft, self._e2e, self._queue, self._gaps):
            self.registry.register(one)
        self._lock = threading.Lock()  # exchanges are observed in another thread than scrapes are answered
        self._ended: dict[tuple[str, str, str], list[int]] = {}  # not yet in the counters: exchanges and tokens
        self._sent: dict[str, list[int]] = {}  # the same, by model: retries, predicted and cached tokens

    def observe(self, line: Ended) -> None:
        """One exchange."""
        with self._lock:
            self._count(line)

    def _count(self, line: Ended) -> None:
        model, outcome = line.model, line.outcome
        sums = self._ended.setdefault((model, line.tenant, outcome), [0, 0, 0])
        sums[0] += 1
        sums[1] += line.prompt_tokens
        sums[2] += line.completion_tokens
        if line.sent_status != 200 and line.reason is not None and outcome in ("rejected", "refused"):
            self._refusals(line.reason if " " not in line.reason else "upstream").inc()
        if line.attempts:
            sums = self._sent.setdefault(model, [0, 0, 0])
            sums[0] += line.attempts - 1
            sums[1] += line.predicted_tokens or 0
            sums[2] += line.cached_tokens or 0
            self._queue.observe(model, line.queue_s)
            self._e2e.observe(model, line.latency_s)
            if outcome not in ("complete", "length", "cancelled", "refused"):
                self._faults(model, line.replica, outcome).inc()
            if line.tool_calls and outcome == "malformed":
                self._tools(model, line.replica).inc()
        if line.ttft_s is not None:
            self._ttft.observe(model, line.ttft_s)
        if line.itl is not None:
            self._gaps.add(model, line.itl, line.itl_sum_s)

    def text(self) -> bytes:
        """The exposition."""
        with self._lock:
            for (model, tenant, outcome), (exchanges, prompt, completion) in self._ended.items():
                self._exchanges(model, tenant, outcome).inc(exchanges)
                self._tokens(model, tenant, "prompt").inc(prompt)
                self._tokens(model, tenant, "completion").inc(completion)
            for model, (retries, predicted, cached) in self._sent.items():
                self._retries(model).inc(retries)
                self._predicted(model).inc(predicted)
                self._cached(model).inc(cached)
            self._ended.clear()
            self._sent.clear()
            return generate_latest(self.registry)


class _Histogram(Collector):
    """A histogram by model, counted in plain numbers and put into words at a scrape.

    Args:
        name: After the gateway's prefix.
        text: What it is.
        bounds: Upper ends of its buckets.
    """

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, model: str, value: float) -> None:
        """One value."""
        counts = self._counts.get(model)
        if counts is None:
            counts = self._counts[model] = [0] * (len(self._bounds) + 1)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[model] = self._sums.get(model, 0.0) + value

    def add(self, model: str, counts: list[int], total: float) -> None:
        """Values that come counted by the bounds and beyond; ``total`` is their sum."""
        known = self._counts.get(model, [0] * len(counts))
        self._counts[model] = [a + b for a, b in zip(known, counts, strict=True)]
        self._sums[model] = self._sums.get(model, 0.0) + total

    def collect(self) -> Iterator[Metric]:
        """The histogram."""
        family = HistogramMetricFamily(f"setpoint_gateway_{self._name}", self._text, labels=("model",))
        bounds = (*map(str, self._bounds), "+Inf")
        for model, counts in self._counts.items():
            family.add_metric((model,), list(zip(bounds, accumulate(counts), strict=True)), self._sums[model])
        yield family


class Live(Collector):
    """What is under way, read from the shared memory at each scrape.

    Args:
        table: Shared memory.
        workers: Number of worker processes.
        replicas: The replicas by model.
    """

    def __init__(self, table: SharedTable, workers: int, replicas: Callable[[], dict[str, list[Replica]]]) -> None:
        self._rows = [table.row(f"worker:{i}") for i in range(workers)]
        self._replicas = replicas

    def describe(self) -> list[Metric]:
        """Nothing: the series depend on the configuration in force."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The gauges."""
        for name, cell, scale, text in (
            ("event_loop_lag_seconds", plane.LAG_US, 1e-6, "How late the worker's event loop was, fading."),
            ("connections", plane.CONNECTIONS, 1, "Open client connections."),
            ("in_flight", plane.EXCHANGES, 1, "Requests under way."),
            ("buffered_bytes", plane.BUFFERED, 1, "Request bodies being read."),
            ("malformed_requests", plane.REFUSED, 1, "Requests that the parser refused."),
        ):
            family = GaugeMetricFamily(f"setpoint_gateway_{name}", text, labels=("worker",))
            for number, row in enumerate(self._rows):
                family.add_metric((str(number),), row[cell] * scale)
            yield family
        queue = GaugeMetricFamily("setpoint_gateway_waiting", "Requests waiting for a replica.", labels=("class",))
        for name, cell in (("interactive", plane.QUEUE_INTERACTIVE), ("batch", plane.QUEUE_BATCH)):
            queue.add_metric((name,), sum(row[cell] for row in self._rows))
        yield queue
        labels = ("model", "replica")
        up = GaugeMetricFamily("setpoint_gateway_replica_up", "Whether requests are sent to it.", labels=labels)
        state = GaugeMetricFamily("setpoint_gateway_replica_state", "1 for its state.", labels=(*labels, "state"))
        flight = GaugeMetricFamily("setpoint_gateway_replica_in_flight", "Requests under way at it.", labels=labels)
        queued = GaugeMetricFamily("setpoint_gateway_replica_queued_tokens", "Prompt tokens queued.", labels=labels)
        about = ("engine", "engine_version", "engine_config")
        info = GaugeMetricFamily("setpoint_gateway_replica_info", "What it is.", labels=(*labels, *about))
        for model, replicas in self._replicas().items():
            for one in replicas:
                info.add_metric((model, one.name, *(getattr(one.config, name) or "" for name in about)), 1)
                up.add_metric((model, one.name), float(one.available()))
                state.add_metric((model, one.name, STATE_NAMES[one.state]), 1)
                flight.add_metric((model, one.name), one.in_flight)
                queued.add_metric((model, one.name), one.queued_tokens)
        yield from (info, up, state, flight, queued)
