"""Figures of a diagnosis as shown, by the command line and by reports."""

from collections.abc import Sequence

from setpoint.diagnosis.attribution import Attribution
from setpoint.diagnosis.budget import Budget
from setpoint.diagnosis.hypothesis import Conclusion, Finding
from setpoint.diagnosis.interval import Interval
from setpoint.diagnosis.service_model import ServiceModel
from setpoint.units import format_duration, format_quantile, format_share


def interval_words(found: Interval | None) -> str:
    """A time with its interval; "not determined" without."""
    if found is None:
        return "not determined by these runs"
    low, high = format_duration(max(found.low, 0.0)), format_duration(found.high)
    return f"{format_duration(found.value)} [{low}, {high}], n={found.samples:,}"


def model_words(model: ServiceModel) -> tuple[tuple[str, str], ...]:
    """Coefficients of a service model: (name, value with interval)."""
    residuals = [
        f"{name} {format_share(x)}" for name, x in (("wait", model.wait_residual), ("step", model.step_residual)) if x is not None
    ]  # fmt: skip
    return (
        ("request alone, fixed overhead", interval_words(model.overhead_s)),
        ("prefill a token", interval_words(model.prefill_s_per_token)),
        ("wait alone, all lengths seen", interval_words(model.alone_s)),
        ("decode step, one stream", interval_words(model.step_s)),
        ("added by each further stream", interval_words(model.step_s_per_stream)),
        ("added by each token of context", interval_words(model.step_s_per_context_token)),
        ("saved by each cached token", interval_words(model.cache_saving_s_per_token)),
        ("median relative residual", ", ".join(residuals) or "not determined by these runs"),
    )


def by_reason(findings: Sequence[Finding]) -> list[tuple[Finding, ...]]:
    """Findings in order; those for which one sentence says the same stand together."""
    out: dict[tuple[Conclusion, str], list[Finding]] = {}
    for finding in findings:
        out.setdefault((finding.conclusion, finding.reason), []).append(finding)
    return [tuple(alike) for alike in out.values()]


def budget_rows(budget: Budget) -> tuple[tuple[str, str, str, str], ...]:
    """Part, allowed, measured, by what; the reserve and the whole last."""
    rows = [
        (
            line.part,
            "not known" if line.allowed_s is None else _signed(line.allowed_s),
            "not measured" if line.measured_s is None else format_duration(line.measured_s),
            line.how,
        )
        for line in budget.lines
    ]
    rows.append(("reserve for bursts", format_duration(budget.reserve_s), "", ""))
    whole = f"{format_quantile(budget.quantile)} {format_duration(budget.measured_s)}"
    rows.append(("end to end", format_duration(budget.limit_s), whole, ""))
    return tuple(rows)


def _signed(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 0 else f"none: {format_duration(-seconds)} over before any queue"


def attribution_words(attribution: Attribution) -> str:
    """One promise's breaches by cause."""
    causes = ", ".join(f"{count:,} {cause}" for cause, count in attribution.causes)
    return f"{attribution.promise} is broken by {attribution.broken:,} of {attribution.exchanges:,}: {causes}"
