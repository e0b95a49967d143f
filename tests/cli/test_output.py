"""Tables on terminals of any width."""

import io

import pytest
from rich.console import Console

from setpoint.cli.output import print_rows, table

COLUMNS = ("run", "status", "verdicts")
ROW = ("20261202-160815-support-chat-361f79", "complete", "[green]2 met[/] 1 undecided since too few exchanges ended")


def printed(width: int, *, whole: bool) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    if whole:
        print_rows(console, COLUMNS, [ROW])
    else:
        console.print(table(COLUMNS, [ROW], title="Runs"))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [36, 40, 50, 59, 60, 66, 70, 80, 100, 120])
def test_no_word_is_cut_and_no_line_is_too_long(width: int) -> None:
    lines = printed(width, whole=False)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for word in " ".join(ROW).replace("[green]", "").replace("[/]", "").split():
        assert word in words


def test_a_narrow_terminal_gets_a_block_a_row() -> None:
    assert printed(40, whole=False) == [
        "Runs",
        "20261202-160815-support-chat-361f79",
        "  status    complete",
        "  verdicts  2 met 1 undecided since too",
        "            few exchanges ended",
    ]
    assert printed(120, whole=False)[1].split() == list(COLUMNS)


@pytest.mark.parametrize("width", [30, 120])
def test_what_is_copied_stands_on_one_line_as_it_is(width: int) -> None:
    lines = printed(width, whole=True)
    for cell in ROW:
        assert any(cell in line for line in lines)
