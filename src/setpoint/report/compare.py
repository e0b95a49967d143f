"""Two runs side by side, where their pins allow it."""

from dataclasses import dataclass

from setpoint.records.record import RunRecord
from setpoint.report.step import Step
from setpoint.units import format_duration, format_number, format_share

COMPARED = (("ttft", 0.5), ("ttft", 0.95), ("tpot", 0.5), ("itl", 0.95), ("e2e", 0.5), ("e2e", 0.95))


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric of two runs, as shown; ``n too small`` where a sample cannot bound it."""

    metric: str
    first: str
    second: str
    ratio: str


def comparison(a: RunRecord, b: RunRecord) -> list[Compared]:
    """Latencies, throughput, goodput and attainment of two runs."""
    first, second = Step(a), Step(b)
    rows = []
    for metric, quantile in COMPARED:
        x, y = first.percentile(metric, quantile), second.percentile(metric, quantile)
        if metric not in first.summary.distributions and metric not in second.summary.distributions:
            continue
        rows.append(Compared(f"{metric.upper()} p{quantile * 100:g}", _time(x), _time(y), _ratio(x, y)))
    rates = (
        ("goodput, requests/s", first.summary.goodput.per_s, second.summary.goodput.per_s),
        ("throughput, tokens/s", _tokens_per_s(first), _tokens_per_s(second)),
    )
    rows += [Compared(name, _number(x), _number(y), _ratio(x, y)) for name, x, y in rates]
    x, y = first.summary.goodput.attainment.share, second.summary.goodput.attainment.share
    rows.append(Compared("attainment", _share(x), _share(y), _ratio(x, y)))
    return rows


def _tokens_per_s(step: Step) -> float | None:
    through = step.summary.throughput
    return None if through is None else through.output_tokens_per_s


def _time(value: float | None) -> str:
    return "n too small" if value is None else format_duration(value)


def _number(value: float | None) -> str:
    return "unknown" if value is None else format_number(value)


def _share(value: float | None) -> str:
    return "unknown" if value is None else format_share(value)


def _ratio(a: float | None, b: float | None) -> str:
    return "" if not a or b is None else f"{b / a:.2f}"
