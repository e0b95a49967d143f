"""Inter-token latency: what a reader feels between one piece of text and the next.

The gaps are raw. A chunk with several tokens ends one gap: the gap is not divided by its tokens, because nobody saw
them one by one. A hidden reasoning chunk between two visible ones does not end a gap.
"""

from setpoint.metrics.registry import MetricDefinition

ITL = MetricDefinition(
    name="itl",
    title="ITL",
    unit="s",
    boundary="visible chunk to next visible chunk",
    per="gap",
    values=lambda table: table.gap_s,
    definition="Gap between consecutive visible chunks of one answer, all gaps kept; not divided by tokens.",
)
