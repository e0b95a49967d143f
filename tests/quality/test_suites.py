"""Reading suites, their controls, and the core suite."""

import json
from pathlib import Path

import pytest
from tests.quality.suites import suite_text, words_suite

from setpoint.errors import SuiteError
from setpoint.quality.controls import check_controls, demand_controls
from setpoint.quality.suite import load_suite, read_suite
from setpoint.quality.suites.core import lines


def line(**members: object) -> str:
    task = {"id": "a", "prompt": "?", "grader": {"name": "exact", "expected": "x"}, "reference": "x"}
    return json.dumps({k: v for k, v in (task | members).items() if v is not None})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "s.jsonl:1: found no JSON"),
        ("[1]", "s.jsonl:1: found list, expected a JSON object"),
        (line(id=None), "s.jsonl:1: id: field required"),
        (line() + "\n\n" + line(), "s.jsonl:3: id: found 'a' again (line 1)"),
        (line(prompt=None), "s.jsonl:1: expected either a prompt or messages"),
        (
            line(messages=[{"role": "user"}], prompt=None),
            "s.jsonl:1: messages: expected messages with role and content",
        ),
        (line(max_tokens=0), "s.jsonl:1: max_tokens: input should be greater than or equal to 1"),
        (line(colour="red"), "s.jsonl:1: colour: extra inputs are not permitted"),
        (line(reference=None), "s.jsonl:1: reference: field required"),
        ('{"suite": "s", "required_coverage": 2}\n' + line(), "s.jsonl:1: required_coverage: input should be less"),
        ('{"suite": "s"}', "s.jsonl holds no task"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_field(text: str, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        read_suite(text, "s.jsonl")
    assert str(caught.value).startswith(said)


def test_a_suite_is_a_file_or_comes_with_setpoint(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(line(), encoding="utf-8")
    assert load_suite(str(file)).name == "mine"
    assert load_suite("core").name == "core"
    with pytest.raises(SuiteError, match="There is no suite 'cora'"):
        load_suite("cora")


def test_the_digest_follows_every_task_and_the_coverage() -> None:
    assert words_suite().digest == words_suite().digest
    assert len({words_suite(3).digest, words_suite(4).digest, words_suite(3, required_coverage=0.5).digest}) == 3


def test_a_good_suite_scores_its_references_full_and_wrong_answers_near_zero() -> None:
    controls = demand_controls(words_suite())
    assert (controls.positive, controls.negative, controls.faults) == (1.0, 0.0, ())


def test_a_suite_whose_reference_does_not_score_full_is_refused() -> None:
    with pytest.raises(SuiteError, match="reference answers do not score full: a"):
        demand_controls(read_suite(line(reference="y"), "s.jsonl"))


def test_a_grader_that_takes_anything_is_refused() -> None:
    tasks = [line(id=f"t{i}", grader={"name": "regex", "pattern": ""}, reference=f"r{i}") for i in range(9)]
    with pytest.raises(SuiteError, match=r"wrong answers score 100%, allowed 5%"):
        demand_controls(read_suite("\n".join(tasks), "s.jsonl"))


def test_a_listed_wrong_answer_that_scores_full_is_refused() -> None:
    text = suite_text() + "\n" + line(wrong=["X."])
    with pytest.raises(SuiteError, match="answers that are listed as wrong score full: a"):
        demand_controls(read_suite(text, "s.jsonl"))


def test_one_answer_for_everything_is_seen() -> None:
    grader = {"name": "exact", "expected": "A"}
    tasks = [line(id=f"t{i}", grader=grader, reference="A") for i in range(8)]
    tasks += [line(id=f"u{i}", grader={"name": "exact", "expected": f"B{i}"}, reference=f"B{i}") for i in range(2)]
    assert check_controls(read_suite("\n".join(tasks), "s.jsonl")).constant == pytest.approx(0.8)


def test_the_core_suite_is_what_its_rules_make() -> None:
    import setpoint.quality.suites as package  # noqa: PLC0415

    stored = (Path(package.__path__[0]) / "core.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(text) for text in stored] == [json.loads(json.dumps(made)) for made in lines()]


def test_the_core_suite_can_be_believed() -> None:
    suite = load_suite("core")
    controls = demand_controls(suite)
    assert controls.negative < 0.01
    assert controls.constant < 0.1
    assert len({task.family for task in suite.tasks}) >= 12
    assert any(task.max_tokens > 150 for task in suite.tasks)
