"""Every metric, one file each. A new one is a file here and a line in ``METRICS``."""

from types import MappingProxyType

from setpoint.metrics.definitions import client_lag, e2e, itl, speed, stall, task, tpot, ttft
from setpoint.metrics.registry import MetricDefinition

METRICS = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            ttft.TTFT,
            ttft.TTFT_FROM_SENT,
            ttft.TTFT_ANY_TOKEN,
            itl.ITL,
            stall.STALL,
            tpot.TPOT,
            speed.USER_SPEED,
            e2e.E2E,
            task.TASK_E2E,
            client_lag.CLIENT_LAG,
        )
    }
)


def metric(name: str) -> MetricDefinition:
    """The metric of that name; KeyError without one."""
    return METRICS[name]
