"""How late the client itself was: evidence for or against the load generator, not the server."""

from setpoint.metrics.registry import MetricDefinition

CLIENT_LAG = MetricDefinition(
    name="client_lag",
    title="Client lag",
    unit="s",
    boundary="scheduled to work begun",
    per="exchange",
    values=lambda table: table.started_s - table.scheduled_s,
    definition="Time from the planned send to the moment the client began to work on it.",
    answered_only=False,
)
