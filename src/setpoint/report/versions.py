"""Vendors, models and versions, as pinned with the runs: the sixth section."""

from collections.abc import Mapping, Sequence

from setpoint.metrics.verdict import Origin
from setpoint.report.content import Block, Fact, Facts
from setpoint.report.step import Step


def version_blocks(steps: Sequence[Step]) -> list[Block]:
    """Pins of the newest load and the machine of the client."""
    meta = steps[-1].record.meta
    pins, env = meta.pins, meta.environment
    date = meta.created[:10]
    source = f"{steps[-1].record.id}: pins"
    names = (
        ("engine", "engine"), ("engine version", "engine_version"), ("engine flags", "engine_flags"), ("model", "model"),
        ("model file", "model_file"), ("model revision", "model_revision"), ("model source", "model_source"),
        ("licence", "licence"), ("precision", "precision"), ("hardware of the engine", "hardware"),
        ("client version", "client_version"), ("card digest", "card_digest"), ("schedule digest", "schedule_digest"),
    )  # fmt: skip
    facts = [Fact(title, _pin(pins.get(key)), Origin.LOGGED, f"{source}.{key}, {date}") for title, key in names]
    machine = ", ".join(str(env[k]) for k in ("cpu_model", "os", "kernel", "python") if env.get(k))
    facts.append(
        Fact(
            "machine of the client", machine or "unknown", Origin.LOGGED, f"{steps[-1].record.id}: environment, {date}"
        )
    )
    return [Facts("As recorded with the runs", tuple(facts))]


def _pin(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return str(value)
