"""A task of Inspect AI against a target, judged by our gate: Inspect asks and scores, the record counts everything.

Inspect is large and not a part of Setpoint: it is found in this environment (``pip install 'setpoint[inspect]'``), or
``SETPOINT_INSPECT`` names its program in another one.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

import setpoint
from setpoint.assess.target import OpenTarget
from setpoint.errors import SetpointError, UsageError
from setpoint.metrics.quality import score_suites
from setpoint.quality.evaluation import Evaluation, facts_of, judge_all
from setpoint.quality.inspect_log import InspectLog, read_log
from setpoint.quality.questions import Sampling
from setpoint.records.environment import environment
from setpoint.records.meta import target_facts
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.records.target import Dialect
from setpoint.workload.card import Workload

PROGRAM = "SETPOINT_INSPECT"
PROVIDER = "setpoint"  # of the model's name: Inspect reads <PROVIDER>_BASE_URL and <PROVIDER>_API_KEY
LONGEST_S = 4 * 3600


def evaluate_inspect(
    opened: OpenTarget,
    store: RunStore,
    task: str,
    *,
    sampling: Sampling,
    card: Workload | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Runs one task and closes its record. Requests that fail are not repeated: they are unmeasured.

    Args:
        opened: The target; its dialect is OpenAI chat.
        store: Where the record goes.
        task: As ``inspect eval`` takes it: a file, or a registered name.
        sampling: How answers are drawn.
        card: Its quality promises are judged.
        note: Told a sentence now and then.

    Raises:
        UsageError: Inspect cannot run the task, or its log cannot be read.
        SetpointError: Inspect is not there.
    """
    if opened.target.dialect is not Dialect.CHAT:
        raise UsageError("Inspect asks in OpenAI chat.", fix="Give --api chat.")
    program = _program()
    note(f"inspect eval {task}")
    with tempfile.TemporaryDirectory(prefix="setpoint-inspect-") as folder:  # its log holds prompts and answers
        log = _run(program, opened, task, sampling, Path(folder))
    writer = store.create(f"eval-{log.rows[0].suite}")
    writer.quality(log.rows)
    writer.update(
        card={} if card is None else card.to_dict(),
        target=target_facts(opened.target),
        environment=environment(),
        pins=dict(opened.pins)
        | {"model": opened.target.model, "dialect": opened.target.dialect.value, "load": "idle"}
        | {"client_version": setpoint.__version__, "runner": f"inspect_ai {log.version or 'unknown'}"}
        | {"suites": {log.rows[0].suite: log.digest}, "sampling": msgspec.to_builtins(sampling)},
    )
    rows = RunRecord(writer.path).quality()
    scores, verdicts = tuple(score_suites(rows)), judge_all(card, rows)
    record = writer.finish(
        quality=facts_of({}, scores), verdicts=[msgspec.to_builtins(v) for v in verdicts], notes=list(log.notes)
    )
    return Evaluation(record, scores, tuple(verdicts), ())


def _program() -> list[str]:
    named = os.environ.get(PROGRAM)
    if named is not None:
        if shutil.which(named) is None:
            raise SetpointError(f"{PROGRAM} is {named!r}; there is no such program.")
        return [named]
    beside = Path(sys.executable).with_name("inspect")
    if not beside.is_file():
        raise SetpointError(
            "Inspect AI is not installed.",
            fix=f"Install it with: pip install 'setpoint[inspect]', or name its program in {PROGRAM}.",
        )
    return [str(beside)]


def _run(program: list[str], opened: OpenTarget, task: str, sampling: Sampling, folder: Path) -> InspectLog:
    target = opened.target
    command = [
        *program, "eval", task, "--model", f"openai-api/{PROVIDER}/{target.model}", "--log-dir", str(folder),
        "--log-format", "json", "--display", "none", "--no-fail-on-error", "--max-retries", "0",
        "-M", "max_retries=0",  # the OpenAI client below it would repeat on its own
        "--max-connections", str(sampling.concurrency), "--epochs", str(sampling.epochs), "--seed", str(sampling.seed),
        "--temperature", str(sampling.temperature),
    ]  # fmt: skip
    variables = {
        f"{PROVIDER.upper()}_BASE_URL": f"{target.base_url}/v1",
        f"{PROVIDER.upper()}_API_KEY": target.api_key or "none",
    }
    done = subprocess.run(  # noqa: S603 - the user names the task, and the program by its environment
        command, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=LONGEST_S
    )
    logs = sorted(folder.glob("*.json"))
    if len(logs) != 1:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UsageError(f"Inspect made {len(logs)} logs of {task!r}: {said[-1] if said else 'it said nothing'}.")
    return read_log(logs[0].read_bytes(), logs[0].name)
