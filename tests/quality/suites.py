"""Small suites, engines that answer them, and evaluations of these."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setpoint.quality.evaluation import EvalSpec, Evaluation, evaluate
from setpoint.quality.suite import Suite, read_suite
from setpoint.records.store import RunStore
from setpoint.records.target import Dialect, Target
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, Said, Script, said_key

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "glade", "heron", "inlet", "jetty")


def suite_text(tasks: int = 20, **header: object) -> str:
    """A JSONL suite: each task asks for a word of its own."""
    lines: list[dict[str, Any]] = [{"suite": "words", **header}]
    for i in range(tasks):
        word = f"{WORDS[i % 10]}{i}"
        lines.append(
            {
                "id": f"word-{i}",
                "family": WORDS[i % 2],
                "prompt": f"Say {word}.",
                "grader": {"name": "exact", "expected": word},
                "reference": word,
            }
        )
    return "\n".join(json.dumps(line) for line in lines)


def words_suite(tasks: int = 20, **header: object) -> Suite:
    return read_suite(suite_text(tasks, **header), "words.jsonl")


def answers_to(suite: Suite, wrong: Mapping[str, str] | None = None) -> dict[str, Said]:
    """Reference answers, but for the tasks in ``wrong``."""
    out = {}
    for task in suite.tasks:
        prompt = str(task.conversation[-1]["content"])
        calls = task.reference.calls
        said = Said(text=task.reference.text)
        if calls:
            said = Said(tool=calls[0].name, arguments=json.dumps(calls[0].arguments))
        out[said_key(prompt)] = Said(text=(wrong or {})[task.id]) if task.id in (wrong or {}) else said
    return out


@contextmanager
def engine_for(
    suite: Suite, wrong: Mapping[str, str] | None = None, *, faults: tuple[Fault, ...] = (), decode_s: float = 0.001
) -> Iterator[Target]:
    """A fake engine that answers the suite."""
    with fake_engine(Script(answers=answers_to(suite, wrong), faults=faults, decode_s=decode_s)) as engine:
        yield Target(engine.url, Dialect.CHAT, "fake")


def evaluated(folder: Path, suite: Suite, target: Target, **spec: Any) -> Evaluation:  # noqa: ANN401 - fields of EvalSpec
    """An evaluation with its record below ``folder``."""
    return evaluate(EvalSpec(target=target, suites=[suite], **spec), RunStore(folder / "runs").create("test"))
