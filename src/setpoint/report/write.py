"""Writing a report to a file, in the form that its name asks for."""

import os
from pathlib import Path

import msgspec

from setpoint.errors import RecordError, UsageError
from setpoint.report.content import Report
from setpoint.report.html import render_html
from setpoint.report.markdown import render_markdown

FORMS = (".html", ".md", ".json")


def demand_writable(path: Path) -> Path:
    """Refuses a place where no report can be written, before anything is measured for it.

    Raises:
        UsageError: another ending, or no file can be made there.
    """
    if path.suffix not in FORMS:
        raise _other_form(path)
    folder = next(p for p in path.absolute().parents if p.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"No report can be written to {path}.", fix="Name a file in a folder that you may write to.")
    return path


def write_report(report: Report, path: Path) -> Path:
    """Writes ``.html``, ``.md`` or ``.json``.

    Raises:
        UsageError: another ending.
        RecordError: the file cannot be written.
    """
    if path.suffix == ".html":
        text = render_html(report)
    elif path.suffix == ".md":
        text = render_markdown(report)
    elif path.suffix == ".json":
        text = msgspec.json.format(msgspec.json.encode(report.to_dict()), indent=2).decode() + "\n"
    else:
        raise _other_form(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {(error.strerror or 'no').lower()}.") from error
    return path


def _other_form(path: Path) -> UsageError:
    return UsageError(f"A report cannot be written as {path.name!r}.", fix=f"End its name in {', '.join(FORMS)}.")
