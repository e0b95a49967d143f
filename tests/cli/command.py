"""``setpoint`` as a user types it, in a folder of its own: in this process, or in one of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from setpoint.cli import run
from setpoint.testing.script import Script

ROOT = Path(__file__).parents[2]
# On a busy machine too there is a verdict: a client that is a second late is above suspicion at so wide a limit, and
# with VARIED the answers' own times differ by more than what a machine adds to many in a row.
CARD = """\
apiVersion: setpoint/v1
kind: Workload
name: quick
contract: {unit: answer, api: chat}
traffic:
  class: interactive
  arrivals: {process: poisson, rate: 60/s}
  prompt_tokens: {min: 16, max: 256}
  output_tokens: 6
  duration: 2s
  warmup_requests: 2
promises:
  - p80 ttft <= 60 s
  - answered >= 80%
"""
VARIED = Script(slots=1000, prefill_token_s=0.005)


def environment() -> dict[str, str]:
    """Of the process: 80 columns, no colours, this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80", "NO_COLOR": "1"}


def setpoint(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs one command to its end, in this process: a new one spends a second or two on imports."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, environment() | variables),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run(list(arguments))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def spawned(folder: Path, *arguments: str, limit_s: float = 90, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs one command to its end in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "setpoint", *arguments],
        cwd=folder,
        env=environment() | variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=limit_s,
    )


def answer(done: subprocess.CompletedProcess[str]) -> Any:  # noqa: ANN401 - whatever the verb answers
    """The JSON on standard output."""
    return json.loads(done.stdout)


def one_message(done: subprocess.CompletedProcess[str]) -> str:
    """The error message of a command that failed: no traceback, nothing on standard output."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout == ""
    start = done.stderr.rindex("setpoint: ")
    return done.stderr[start:].strip()
