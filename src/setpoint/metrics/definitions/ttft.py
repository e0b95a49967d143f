"""Time to first token, under its three boundaries.

The plain name counts what a user waits for: from the planned send (the client's own lag and any queue included) to
the first thing seen. On a reasoning model the hidden part is waiting; ``ttft_any_token`` tells it apart.
"""

from setpoint.metrics.registry import MetricDefinition

TTFT = MetricDefinition(
    name="ttft",
    title="TTFT",
    unit="s",
    boundary="scheduled to first visible chunk",
    per="exchange",
    values=lambda table: table.first_visible_s - table.scheduled_s,
    definition="Time from the planned send to the first chunk that a user sees (content or tool call).",
)
TTFT_FROM_SENT = MetricDefinition(
    name="ttft_from_sent",
    title="TTFT from sent",
    unit="s",
    boundary="last request byte sent to first visible chunk",
    per="exchange",
    values=lambda table: table.first_visible_s - table.sent_s,
    definition="Time from the last request byte to the first visible chunk: without lag or wait in the client.",
)
TTFT_ANY_TOKEN = MetricDefinition(
    name="ttft_any_token",
    title="TTFT of any token",
    unit="s",
    boundary="scheduled to first chunk of any kind",
    per="exchange",
    values=lambda table: table.first_token_s - table.scheduled_s,
    definition="Time from the planned send to the first chunk of any kind, hidden reasoning included.",
)
