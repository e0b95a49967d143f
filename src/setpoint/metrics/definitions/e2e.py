"""End-to-end latency: from the planned send to the end of the answer."""

from setpoint.metrics.registry import MetricDefinition

E2E = MetricDefinition(
    name="e2e",
    title="E2E",
    unit="s",
    boundary="scheduled to done",
    per="exchange",
    values=lambda table: table.done_s - table.scheduled_s,
    definition="Time from the planned send to the end of the answer.",
)
