"""Cards for tests: one good card whose parts can be replaced, and the mistakes of one that is not good."""

from pathlib import Path

import pytest
from tests.shared import shared_data

from setpoint.errors import CardError, Mistake
from setpoint.workload.card import Workload
from setpoint.workload.reading import parse_card

FILE = "card.yaml"


def text(
    *,
    head: str = "apiVersion: setpoint/v1\nkind: Workload\nname: test",
    arrivals: str = "{process: poisson, rate: 2/s}",
    prompt: str = "100",
    output: str = "20",
    traffic: str = "",
    rest: str = "",
) -> bytes:
    """Lines 1-3 head, 4 traffic, 5 arrivals, 6 prompt_tokens, 7 output_tokens, 8 more of traffic, then the rest."""
    lines = [head, "traffic:", f"  arrivals: {arrivals}", f"  prompt_tokens: {prompt}", f"  output_tokens: {output}"]
    lines += [f"  {traffic}"] if traffic else []
    lines += [rest] if rest else []
    return "\n".join(lines).encode()


def card(**parts: str) -> Workload:
    return parse_card(text(**parts), FILE)


def mistakes(content: bytes) -> list[Mistake]:
    with pytest.raises(CardError) as caught:
        parse_card(content, FILE)
    assert caught.value.exit_code == 2
    assert all(m.file == FILE for m in caught.value.mistakes)
    return caught.value.mistakes


def mistake(**parts: str) -> Mistake:
    """The only mistake of a card."""
    found = mistakes(text(**parts))
    assert len(found) == 1, [str(m) for m in found]
    return found[0]


def shared_traces() -> Path:
    """Traces of real traffic that lie beside the project."""
    return shared_data() / "traces"
