"""All hypotheses, one file each. A new one is a file here and a line in ``HYPOTHESES``."""

from setpoint.diagnosis.hypotheses.batch import BATCH
from setpoint.diagnosis.hypotheses.client import CLIENT
from setpoint.diagnosis.hypotheses.cold_start import COLD_START
from setpoint.diagnosis.hypotheses.decode_bandwidth import DECODE_BANDWIDTH
from setpoint.diagnosis.hypotheses.failures import FAILURES
from setpoint.diagnosis.hypotheses.gateway import GATEWAY
from setpoint.diagnosis.hypotheses.host import HOST
from setpoint.diagnosis.hypotheses.interconnect import INTERCONNECT
from setpoint.diagnosis.hypotheses.interference import INTERFERENCE
from setpoint.diagnosis.hypotheses.kv_pressure import KV_PRESSURE
from setpoint.diagnosis.hypotheses.launch_bound import LAUNCH_BOUND
from setpoint.diagnosis.hypotheses.neighbour import NEIGHBOUR
from setpoint.diagnosis.hypotheses.prefill import PREFILL
from setpoint.diagnosis.hypotheses.prefix_cache import PREFIX_CACHE
from setpoint.diagnosis.hypotheses.queueing import QUEUEING
from setpoint.diagnosis.hypotheses.reasoning import REASONING
from setpoint.diagnosis.hypotheses.scheduler import SCHEDULER
from setpoint.diagnosis.hypotheses.speculation import SPECULATION
from setpoint.diagnosis.hypotheses.wedged import WEDGED
from setpoint.diagnosis.hypothesis import Hypothesis

HYPOTHESES: dict[str, Hypothesis] = {
    h.name: h
    for h in (
        CLIENT,
        NEIGHBOUR,
        WEDGED,
        FAILURES,
        GATEWAY,
        QUEUEING,
        SCHEDULER,
        KV_PRESSURE,
        PREFILL,
        PREFIX_CACHE,
        HOST,
        REASONING,
        COLD_START,
        INTERFERENCE,
        BATCH,
        DECODE_BANDWIDTH,
        SPECULATION,
        LAUNCH_BOUND,
        INTERCONNECT,
    )
}
