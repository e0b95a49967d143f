"""The report as one self-contained HTML page."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from setpoint.report.content import Report


def render_html(report: Report) -> str:
    """One page: no request leaves it, and it reads without its few lines of script."""
    environment = Environment(
        loader=PackageLoader("setpoint.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(report=report)
