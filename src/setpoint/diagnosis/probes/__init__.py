"""All probes, one file each. A new one is a file here and a line in ``PROBES``."""

from setpoint.diagnosis.probe import Probe
from setpoint.diagnosis.probes.canary import CANARY
from setpoint.diagnosis.probes.concurrency_ladder import CONCURRENCY_LADDER
from setpoint.diagnosis.probes.decode_control import DECODE_CONTROL
from setpoint.diagnosis.probes.direct import DIRECT
from setpoint.diagnosis.probes.half_load import HALF_LOAD
from setpoint.diagnosis.probes.output_ladder import OUTPUT_LADDER
from setpoint.diagnosis.probes.prefix_pair import PREFIX_PAIR
from setpoint.diagnosis.probes.prompt_ladder import PROMPT_LADDER
from setpoint.diagnosis.probes.repeat import REPEAT

PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (  # in the order in which they are worth running
        CANARY,
        REPEAT,
        PROMPT_LADDER,
        OUTPUT_LADDER,
        DIRECT,
        HALF_LOAD,
        CONCURRENCY_LADDER,
        PREFIX_PAIR,
        DECODE_CONTROL,
    )
}
