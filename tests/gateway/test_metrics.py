"""Metrics are made of what was recorded, and carry nothing that a client wrote."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.test_ledger import ended

from setpoint.gateway.metrics import Live, Metrics
from setpoint.gateway.shared import SharedTable


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
    assert found["setpoint_gateway_itl_seconds_bucket", (("le", "0.01"), *model)] == 6
    assert found["setpoint_gateway_itl_seconds_count", model] == 6
    assert found["setpoint_gateway_ttft_seconds_bucket", (("le", "0.25"), *model)] == 0
    assert found["setpoint_gateway_ttft_seconds_bucket", (("le", "0.5"), *model)] == 1
    table.close()
