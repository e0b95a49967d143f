"""The prompt ladder once more, sent to the engine itself."""

from setpoint.diagnosis.probe import Probe
from setpoint.diagnosis.probes.prompt_ladder import schedule

DIRECT = Probe(
    name="direct",
    title="Direct to the engine against through the gateway",
    question="How much of the time is spent before the engine hears of the request?",
    results=(
        ("the same prompts are faster", "the difference is gateway and network"),
        ("the same prompts take as long", "what lies before the engine is not the cause"),
    ),
    schedule=schedule,
    direct=True,
)
