"""An agent's task is one thing: its time runs from the first turn to the last, and one failed turn fails it."""

import msgspec
import pytest
from tests.load.conftest import make_card
from tests.records.rows import exchange

from setpoint.metrics.judge import judge_all
from setpoint.metrics.summary import summarise
from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.verdict import State
from setpoint.records.exchange import Exchange, Outcome
from setpoint.workload.card import Workload

TURNS = 3


def card(limit: str = "p80 e2e <= 5 s") -> Workload:
    agent = {"tool_turns": 2, "tool_time": "1s", "result_tokens": 20}
    return make_card(agent=agent, promises=[limit, "answered >= 50%"])


def task(session: int, *outcomes: Outcome, every_s: float = 1.0) -> list[Exchange]:
    """Three turns, each ``every_s`` after the one before; each answer takes 0.131 s."""
    rows = []
    for turn in range(TURNS):
        outcome = outcomes[turn] if turn < len(outcomes) else Outcome.COMPLETE
        row = exchange(session * TURNS + turn, at=session * 0.25 + turn * every_s, outcome=outcome)
        rows.append(msgspec.structs.replace(row, session=session, turn=turn))
    return rows


def table(*tasks: list[Exchange]) -> ExchangeTable:
    return ExchangeTable.from_exchanges(row for rows in tasks for row in rows)


def test_a_task_lasts_from_its_first_send_to_its_last_end() -> None:
    tasks = table(task(0), task(1, every_s=2.0)).tasks()
    assert len(tasks) == 2
    assert (tasks.done_s - tasks.scheduled_s).tolist() == pytest.approx([2.131, 4.131])
    assert tasks.answered.all()
    assert tasks.output_tokens.tolist() == [12, 12]


def test_one_failed_turn_fails_the_task_as_it_failed() -> None:
    tasks = table(task(0, Outcome.COMPLETE, Outcome.TRUNCATED, Outcome.ERROR), task(1)).tasks()
    assert tasks.outcomes() == {"truncated": 1, "complete": 1}


def test_for_agents_e2e_is_the_whole_task() -> None:
    assert card().promises[0].label == "p80 E2E of the task ≤ 5.00 s"
    slow, quick = (table(*(task(i, every_s=gap) for i in range(300))) for gap in (3.0, 1.0))
    missed, answered = judge_all(card().promises, slow)
    assert (missed.state, answered.state) == (State.MISSED, State.MET)
    assert missed.samples == 300
    assert answered.samples == 900
    assert "300 tasks within 5.00 s" in missed.reason
    assert judge_all(card().promises, quick)[0].state is State.MET


def test_a_task_that_the_client_cut_off_is_open() -> None:
    cut = [task(i, Outcome.COMPLETE, Outcome.CANCELLED)[:2] for i in range(40)]
    verdict = judge_all(card().promises, table(*cut))[0]
    assert verdict.state is State.UNDECIDED


def test_the_summary_has_tasks_only_where_they_are_promised() -> None:
    rows = table(*(task(i) for i in range(40)))
    summary = summarise(rows, card().promises)
    assert summary.distributions["task_e2e"].samples == 40
    assert summary.distributions["e2e"].samples == 120
    assert summary.goodput.limits == ()
    assert "task_e2e" not in summarise(rows, make_card().promises).distributions


def test_the_boundary_is_refused_elsewhere() -> None:
    with pytest.raises(ValueError, match=r"task only where traffic\.agent is given"):
        make_card(promises=["p80 e2e <= 5 s from task"])
    with pytest.raises(ValueError, match="boundary task with e2e only"):
        make_card(promises=["p80 ttft <= 5 s from task"])
