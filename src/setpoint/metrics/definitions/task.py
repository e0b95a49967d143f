"""End-to-end latency of an agent's whole task: every turn, tool calls and waits included."""

from setpoint.metrics.registry import MetricDefinition

TASK_E2E = MetricDefinition(
    name="task_e2e",
    title="E2E of the task",
    unit="s",
    boundary="first turn scheduled to last turn done",
    per="task",
    values=lambda tasks: tasks.done_s - tasks.scheduled_s,
    definition="Time from the planned send of a task's first turn to the end of its last, tools and retries included.",
)
