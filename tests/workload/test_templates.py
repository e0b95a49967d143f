"""The cards to begin with are good cards."""

import jsonschema
import pytest
import yaml

from setpoint.errors import UsageError
from setpoint.workload.card import json_schema
from setpoint.workload.generate import schedule_for
from setpoint.workload.promise import LATENCIES
from setpoint.workload.reading import parse_card
from setpoint.workload.schedule import TurnKind
from setpoint.workload.templates import USE_CASES, template


def test_there_is_one_for_each_use_case() -> None:
    assert USE_CASES == ("chat", "coding-agent", "rag", "batch-extraction", "embeddings")


@pytest.mark.parametrize("use_case", USE_CASES)
def test_a_template_is_a_good_card_with_comments_and_promises(use_case: str) -> None:
    text = template(use_case)
    card = parse_card(text.encode(), use_case)
    assert text.count("#") > 5
    assert any(p.metric in LATENCIES for p in card.promises)
    assert card.contract.unit != "request"
    jsonschema.validate(yaml.safe_load(text), json_schema())


@pytest.mark.parametrize("use_case", USE_CASES)
def test_a_commented_line_of_a_template_may_be_uncommented(use_case: str) -> None:
    lines = [line.replace("# ", "", 1) if line.startswith("  # ") else line for line in template(use_case).splitlines()]
    card = parse_card("\n".join(lines).encode(), use_case)
    assert card.constraints.budget is not None
    assert card.constraints.hardware


@pytest.mark.parametrize("use_case", USE_CASES)
def test_a_template_gives_a_schedule(use_case: str) -> None:
    card = parse_card(template(use_case).encode(), use_case)
    schedule = schedule_for(card, 1, max_requests=2000)
    kinds = {turn.kind for s in schedule.sessions for turn in s.turns[1:]}
    expected = {"chat": {TurnKind.USER}, "coding-agent": {TurnKind.TOOL}}.get(use_case, set())
    assert schedule.requests > 100
    assert kinds == expected
    assert (schedule.concurrency is None) == (schedule.offered_per_s is not None)


def test_an_unknown_use_case_is_told_the_known_ones() -> None:
    with pytest.raises(UsageError, match="Choose one of: chat, coding-agent"):
        template("chess")
