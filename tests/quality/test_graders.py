"""What each grader takes for right, for partly right, and for wrong."""

import json
from typing import Any

import pytest

from setpoint.errors import SuiteError
from setpoint.quality.graders.registry import grade
from setpoint.quality.suite import read_suite
from setpoint.quality.task import CallText, GraderChoice, Reference, Response, Task


def task(grader: dict[str, Any]) -> Task:
    return Task(id="t", prompt="?", grader=GraderChoice.model_validate(grader), reference=Reference())


def score(grader: dict[str, Any], text: str = "", *calls: tuple[str, str]) -> float:
    return grade(task(grader), Response(text, tuple(CallText(*c) for c in calls))).score


SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
WEATHER = {"name": "get_weather", "arguments": {"city": {"any_of": ["Oslo", "Oslo, Norway"]}, "days": 2}}


@pytest.mark.parametrize(
    ("grader", "text", "expected"),
    [
        ({"name": "exact", "expected": "Paris"}, ' "paris."\n', 1),
        ({"name": "exact", "expected": ["a b", "c"]}, "A  b", 1),
        ({"name": "exact", "expected": "Paris"}, "It is Paris", 0),
        ({"name": "exact", "expected": "Paris", "strict": True}, "paris", 0),
        ({"name": "exact", "expected": "Paris", "strict": True}, "Paris", 1),
        ({"name": "numeric", "expected": 1234}, "That makes 1,234.", 1),
        ({"name": "numeric", "expected": -3}, "−3", 1),  # noqa: RUF001 - a minus sign
        ({"name": "numeric", "expected": 5}, "2 + 3 = 5", 1),
        ({"name": "numeric", "expected": 2, "which": "first"}, "2 + 3 = 5", 1),
        ({"name": "numeric", "expected": 5, "which": "only"}, "2 + 3 = 5", 0),
        ({"name": "numeric", "expected": 3.14, "tolerance": 0.01}, "3.1415", 1),
        ({"name": "numeric", "expected": 3.14}, "3.1415", 0),
        ({"name": "numeric", "expected": 5}, "five", 0),
        ({"name": "numeric", "expected": 2}, "x2", 0),
        ({"name": "regex", "pattern": r"\bno\b"}, "oh no!", 1),
        ({"name": "regex", "pattern": "no", "whole": True}, "oh no", 0),
        ({"name": "regex", "pattern": "NO", "ignore_case": True, "whole": True}, " no ", 1),
        ({"name": "json_schema", "schema": SCHEMA}, '{"age": 3}', 1),
        ({"name": "json_schema", "schema": SCHEMA}, '```json\n{"age": 3}\n```', 1),
        ({"name": "json_schema", "schema": SCHEMA, "fenced": False}, '```json\n{"age": 3}\n```', 0),
        ({"name": "json_schema", "schema": SCHEMA}, '{"age": "3"}', 0),
        ({"name": "json_schema", "schema": SCHEMA}, "age 3", 0),
        ({"name": "json_schema", "schema": SCHEMA, "expected": {"age": 3, "name": "Ana"}}, '{"age": 3}', 0.5),
        ({"name": "needle", "expected": "4711", "decoys": ["1234"]}, "It is 4711.", 1),
        ({"name": "needle", "expected": "4711", "decoys": ["1234"]}, "1234 or 4711", 0),
        ({"name": "needle", "expected": "4711"}, "none", 0),
        ({"name": "overlap", "expected": ["a", "b"]}, "B; a", 1),
        ({"name": "overlap", "expected": ["a", "b"]}, "a, c", 0.5),
        ({"name": "overlap", "expected": ["a", "b"]}, "", 0),
        ({"name": "sequence", "expected": ["1", "2", "3", "4"]}, "1, 2 3\n4", 1),
        ({"name": "sequence", "expected": ["1", "2", "3", "4"]}, "1 2 4 3", 0.5),
        ({"name": "sequence", "expected": ["1", "2"]}, "1 2 3 4", 1),
        ({"name": "code", "tests": "assert f(2) == 4"}, "```python\ndef f(x):\n    return x * x\n```", 1),
        ({"name": "code", "tests": "assert f(2) == 4"}, "def f(x):\n    return x + 1", 0),
        ({"name": "code", "tests": "assert f(2) == 4"}, "I do not know.", 0),
    ],
)
def test_scores(grader: dict[str, Any], text: str, expected: float) -> None:
    assert score(grader, text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([("get_weather", '{"days": 2, "city": " oslo"}')], 1),
        ([("get_weather", '{"city": "Oslo, Norway", "days": 2}')], 1),
        ([("get_weather", '{"city": "Rome", "days": 2}')], 0),
        ([("get_weather", '{"city": "Oslo"}')], 0),
        ([("get_weather", '{"city": "Oslo", "days": 2, "more": 1}')], 0),
        ([("get_weather", '{"city": "Oslo", "days": true}')], 0),
        ([("other", '{"city": "Oslo", "days": 2}')], 0),
        ([("get_weather", '{"city": "Oslo", ')], 0),
        ([], 0),
        ([("get_weather", '{"city": "Oslo", "days": 2}')] * 2, 0),
    ],
)
def test_a_tool_call_needs_the_name_and_all_arguments(calls: list[tuple[str, str]], expected: float) -> None:
    assert score({"name": "tool_call", "calls": [WEATHER]}, "", *calls) == expected


def test_calls_are_right_in_any_order_and_none_can_be_what_is_right() -> None:
    cities = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Rome", "Lima")]
    given = [("get_weather", json.dumps({"city": city})) for city in ("Lima", "Rome")]
    assert score({"name": "tool_call", "calls": cities}, "", *given) == 1
    assert score({"name": "tool_call", "calls": []}, "no tool") == 1
    assert score({"name": "tool_call", "calls": []}, "", given[0]) == 0


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os\nos._exit(0)", "fails its tests"),
        ("import sys\nsys.exit(0)", "fails its tests"),
        ("print('passed')", "fails its tests"),
        ("while True: pass", "fails its tests"),
        ("x = 'a' * 10**11", "fails its tests"),
        ("open('/etc/passwd').read()\ndef f(): return 1", "reaches outside its cell"),
        ("open('mine', 'w')\ndef f(): return 1", "reaches outside its cell"),
        ("import socket\nsocket.socket()\ndef f(): return 1", "reaches outside its cell"),
        ("import os\nos.system('true')\ndef f(): return 1", "reaches outside its cell"),
        ("import subprocess\nsubprocess.run(['true'])\ndef f(): return 1", "reaches outside its cell"),
        ("import os\nos.fork()\ndef f(): return 1", "reaches outside its cell"),
        ("try:\n    open('/etc/passwd')\nexcept Exception:\n    pass\ndef f(): return 1", "reaches outside its cell"),
        ("def f(:", "not Python"),
    ],
)
def test_code_cannot_pass_without_passing_or_leave_its_cell(program: str, reason: str) -> None:
    found = grade(task({"name": "code", "tests": "assert f() == 1", "time_s": 1}), Response(program))
    assert (found.score, found.reason) == (0.0, reason)


def test_code_may_use_the_standard_library() -> None:
    program = "import re, math, collections, json\ndef f():\n    return math.floor(1.5)"
    assert score({"name": "code", "tests": "assert f() == 1"}, program) == 1


@pytest.mark.parametrize(
    ("grader", "said"),
    [
        ({"name": "guess"}, "grader.name: found 'guess'"),
        ({"name": "numeric"}, "grader.expected: field required"),
        ({"name": "numeric", "expected": "many"}, "grader.expected: input should be a valid number"),
        ({"name": "exact", "expected": "a", "fuzzy": 1}, "grader.fuzzy: extra inputs are not permitted"),
        ({"name": "regex", "pattern": "("}, "grader.pattern: expected a regular expression"),
        ({"name": "json_schema", "schema": {"type": 7}}, "grader.schema: expected a JSON Schema"),
    ],
)
def test_a_wrong_parameter_is_named_with_file_and_line(grader: dict[str, Any], said: str) -> None:
    line = json.dumps({"id": "a", "prompt": "?", "grader": grader, "reference": ""})
    with pytest.raises(SuiteError) as caught:
        read_suite(line, "mine.jsonl")
    assert str(caught.value).startswith(f"mine.jsonl:1: {said}")
