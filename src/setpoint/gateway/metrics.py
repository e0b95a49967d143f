"""Prometheus metrics of the gateway: what ended comes from the journals, what is under way from the shared memory."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
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

        def histogram(name: str, text: str, bounds: tuple[float, ...]) -> Callable[..., Histogram]:
            name = f"setpoint_gateway_{name}"
            return cache(Histogram(name, text, ("model",), buckets=bounds, registry=self.registry).labels)

        self._exchanges = counter("exchanges", "Exchanges by how they ended.", "model", "tenant", "outcome")
        self._refusals = counter("refusals", "Requests that got no answer, by reason.", "reason")
        self._tokens = counter("tokens", "Tokens by kind.", "model", "tenant", "kind")
        self._predicted = counter("prefix_predicted_tokens", "Cached tokens that the router expected.", "model")
        self._cached = counter("prefix_cached_tokens", "Cached tokens that the engines reported.", "model")
        self._retries = counter("retries", "Attempts beyond the first.", "model")
        self._faults = counter("replica_faults", "Exchanges that an engine failed.", "model", "replica", "outcome")
        self._tools = counter("tool_call_failures", "Answers whose tool calls are unusable.", "model", "replica")
        self._ttft = histogram("ttft_seconds", "Arrival to first visible delta.", _TTFT)
        self._e2e = histogram("e2e_seconds", "Arrival to end.", _E2E)
        self._queue = histogram("queue_seconds", "Waiting for a replica.", _TTFT)
        self._gaps: dict[str, tuple[list[int], float]] = {}
        self.registry.register(_Gaps(self._gaps))

    def observe(self, line: Ended) -> None:
        """One exchange."""
        model, tenant = line.model, line.tenant
        self._exchanges(model, tenant, line.outcome).inc()
        if line.sent_status != 200 and line.reason is not None and line.outcome in ("rejected", "refused"):
            self._refusals(line.reason if " " not in line.reason else "upstream").inc()
        self._tokens(model, tenant, "prompt").inc(line.prompt_tokens)
        self._tokens(model, tenant, "completion").inc(line.completion_tokens)
        if line.attempts:
            self._retries(model).inc(line.attempts - 1)
            self._queue(model).observe(line.queue_s)
            self._e2e(model).observe(line.latency_s)
            self._predicted(model).inc(line.predicted_tokens or 0)
            self._cached(model).inc(line.cached_tokens or 0)
            if line.outcome not in ("complete", "length", "cancelled", "refused"):
                self._faults(model, line.replica, line.outcome).inc()
            if line.tool_calls and line.outcome == "malformed":
                self._tools(model, line.replica).inc()
        if line.ttft_s is not None:
            self._ttft(model).observe(line.ttft_s)
        if line.itl is not None:
            counts, total = self._gaps.get(model, ([0] * len(line.itl), 0.0))
            self._gaps[model] = [a + b for a, b in zip(counts, line.itl, strict=True)], total + line.itl_sum_s

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


class _Gaps(Collector):
    """The histogram of gaps, which come counted.

    Args:
        gaps: By model: counts by ``ITL_BOUNDS_S`` and beyond, and the sum.
    """

    def __init__(self, gaps: dict[str, tuple[list[int], float]]) -> None:
        self._gaps = gaps

    def collect(self) -> Iterator[Metric]:
        """The histogram."""
        text = "Gaps between visible deltas of one answer."
        family = HistogramMetricFamily("setpoint_gateway_itl_seconds", text, labels=("model",))
        for model, (counts, total) in tuple(self._gaps.items()):
            bounds = (*map(str, ITL_BOUNDS_S), "+Inf")
            family.add_metric((model,), list(zip(bounds, accumulate(counts), strict=True)), total)
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
            ("event_loop_lag_seconds", plane.LAG_US, 1e-6, "How late the worker's event loop last was."),
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
