"""The page about quality says what the code has, and its suite is a good one."""

import re
from pathlib import Path

from setpoint.quality.controls import demand_controls
from setpoint.quality.graders.registry import GRADERS
from setpoint.quality.serving.registry import CHECKS
from setpoint.quality.suite import load_suite, read_suite

PAGE = (Path(__file__).parents[2] / "docs" / "quality.md").read_text(encoding="utf-8")


def rows(after: str) -> list[str]:
    table = PAGE.split(after, 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_every_grader_and_check_has_its_row() -> None:
    assert set(rows("| grader | score | parameters |")) == set(GRADERS)
    assert rows("| check | what must hold |") == list(CHECKS)


def test_the_example_is_a_suite_with_good_controls() -> None:
    found = re.search(r"<!-- tested -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    suite = read_suite(found[1], "faq.jsonl")
    assert (suite.name, len(suite.tasks)) == ("faq", 2)
    demand_controls(suite)


def test_the_size_of_the_core_suite_is_told() -> None:
    assert f"{len(load_suite('core').tasks)} tasks made by rule" in PAGE
