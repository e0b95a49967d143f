"""The longest silence within an answer."""

from setpoint.metrics.registry import MetricDefinition

STALL = MetricDefinition(
    name="stall",
    title="Longest stall",
    unit="s",
    boundary="longest gap between visible chunks",
    per="exchange",
    values=lambda table: table.longest_gap(),
    definition="The longest gap between consecutive visible chunks of one answer.",
)
