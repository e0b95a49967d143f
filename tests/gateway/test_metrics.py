"""Metrics are made of what was recorded, and carry nothing that a client wrote."""

import json
import time
from contextlib import ExitStack
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.conftest import HELLO, config_of, served, until
from tests.gateway.test_ledger import ended

from setpoint.gateway.metrics import Live, Metrics
from setpoint.gateway.plane import BUFFERED
from setpoint.gateway.shared import SharedTable
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_exchanges_become_series(tmp_path: Path) -> None:
    table = SharedTable(tmp_path / "table", 1, -1)
    metrics = Metrics(Live(table, 1, dict))
    metrics.observe(
        ended(1, attempts=2, ttft_s=0.3, itl=[5, 1] + [0] * 9, itl_sum_s=0.02, cached_tokens=4, predicted_tokens=3)
    )
    metrics.observe(ended(2, outcome="truncated", status=502, attempts=1, replica="r1"))
    metrics.observe(ended(3, outcome="rejected", status=429, sent_status=429, reason="streams", completion_tokens=0))
    metrics.observe(ended(4, outcome="malformed", status=502, attempts=1, replica="r1", tool_calls=1))
    metrics.observe(ended(5, outcome="empty", status=502, attempts=1, replica="r1"))
    found = samples(metrics)
    model = (("model", "m"),)
    assert found["setpoint_gateway_exchanges_total", (("model", "m"), ("outcome", "complete"), ("tenant", "a"))] == 1
    assert found["setpoint_gateway_replica_faults_total", (*model, ("outcome", "truncated"), ("replica", "r1"))] == 1
    assert found["setpoint_gateway_tool_call_failures_total", (*model, ("replica", "r1"))] == 1
    assert found["setpoint_gateway_exchanges_total", (*model, ("outcome", "empty"), ("tenant", "a"))] == 1
    assert found["setpoint_gateway_refusals_total", (("reason", "streams"),)] == 1
    assert found["setpoint_gateway_retries_total", model] == 1
    assert found["setpoint_gateway_prefix_cached_tokens_total", model] == 4
    assert found["setpoint_gateway_prefix_predicted_tokens_total", model] == 3
    assert found["setpoint_gateway_itl_seconds_bucket", (("le", "0.01"), *model)] == 6
    assert found["setpoint_gateway_itl_seconds_count", model] == 6
    assert found["setpoint_gateway_ttft_seconds_bucket", (("le", "0.25"), *model)] == 0
    assert found["setpoint_gateway_ttft_seconds_bucket", (("le", "0.5"), *model)] == 1
    table.close()


def test_what_is_under_way_is_read_from_the_shared_memory(state: Path) -> None:
    """Under way, waiting by class, at the replica, whether that gets requests, and how late the event loop was."""
    with ExitStack() as stack:
        engine = stack.enter_context(fake_engine(Script(decode_s=0.2, output_tokens=1000)))
        config = config_of(state, engine.url)
        config["models"]["fake"]["replicas"][0]["max_in_flight"] = 1
        gateway = stack.enter_context(served(config))
        replicas = gateway.plane.snapshot.routes["fake"].gate.replicas
        metrics = Metrics(Live(gateway.table, 1, lambda: {"fake": replicas}))

        def value(name: str, **labels: str) -> float:
            return samples(metrics)[f"setpoint_gateway_{name}", tuple(sorted(labels.items()))]

        body = json.dumps({"model": "fake", "messages": HELLO, "stream": True, "max_tokens": 500}).encode()
        for number, priority in enumerate(("interactive", "batch", "batch", "interactive")):
            head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            head += f"x-setpoint-class: {priority}\r\ncontent-length: {len(body)}\r\n\r\n"
            stack.enter_context(gateway.raw()).sendall(head.encode() + body)
            wanted = number + 1
            until(lambda: len(gateway.plane.exchanges) == wanted)  # noqa: B023 - waited for here
        until(lambda: value("in_flight", worker="0") == 4)
        assert (value("waiting", **{"class": "interactive"}), value("waiting", **{"class": "batch"})) == (1, 2)
        assert value("connections", worker="0") == 4
        one = {"model": "fake", "replica": "r0"}
        assert (value("replica_in_flight", **one), value("replica_up", **one)) == (1, 1)
        for _ in range(3):
            gateway.do(replicas[0].failed)
        assert value("replica_up", **one) == 0
        gateway.do(time.sleep, 0.5)
        until(lambda: value("event_loop_lag_seconds", worker="0") > 0.2)
        swept = gateway.plane._row[BUFFERED] = -1
        until(lambda: gateway.plane._row[BUFFERED] != swept)
        assert value("event_loop_lag_seconds", worker="0") > 0.2  # it is still to be seen when the next scrape comes
