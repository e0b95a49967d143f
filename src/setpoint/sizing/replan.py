"""The memory plan of a model on the stack that one start-up log is of."""

from setpoint.errors import UsageError
from setpoint.models.spec import ModelSpec
from setpoint.sizing.calibration import Calibration
from setpoint.sizing.deployment import Deployment
from setpoint.sizing.plan import MemoryPlan, plan_memory

_UTILIZATION = 0.9


def replan(
    spec: ModelSpec, log: Calibration, max_model_len: int | None = None, device_bytes: float | None = None
) -> MemoryPlan:
    """The plan, with the log's terms in place of the assumed ones.

    Args:
        spec: The model that the log is of.
        log: What was solved from it.
        max_model_len: Instead of the log's.
        device_bytes: Of one device, where the log does not state it.

    Raises:
        UsageError: nobody said how much memory a device has, or how long a request may be.
    """
    device = device_bytes or log.device_bytes
    if device is None:
        raise UsageError(
            "The log does not state the memory of the device.", fix='Give it with --device-memory, e.g. "79.2 GiB".'
        )
    longest = max_model_len or log.max_model_len or spec.max_positions
    if not longest:
        raise UsageError("Neither log nor model states the longest request.", fix="Give it with --max-model-len.")
    deployment = Deployment(log.engine, longest, tp=log.tp or 1, utilization=log.utilization or _UTILIZATION)
    steps = tuple(2**power for power in range(10, 25) if 2**power < longest)
    return plan_memory(spec, deployment, device, steps, log)
