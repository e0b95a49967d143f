"""Plants every bottleneck on the fake engine, diagnoses each, and publishes the confusion matrix in docs/diagnosis.md.

    PYTHONPATH=src python -m benchmarks.confusion [NAME ...] [--rounds 1] [--write]

A plant passes when its causes, and only they, are supported, the largest first.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.planted_run import diagnose_plant

from setpoint.diagnosis.hypotheses import HYPOTHESES
from setpoint.testing.planted import PLANTED

DOCS = Path(__file__).parents[1] / "docs/diagnosis.md"
BEGIN, END = "<!-- confusion matrix -->", "<!-- end of the matrix -->"
LETTERS = {"supported": "S", "undecided": "?", "refuted": "·"}


@dataclass
class Row:
    """What became of one plant."""

    plant: str
    causes: list[str]
    conclusions: dict[str, str]
    supported: list[str]
    seconds: float
    probes: list[str]

    @property
    def right(self) -> bool:
        """Whether exactly the planted causes are supported, the main one first."""
        return set(self.supported) == set(self.causes) and self.supported[:1] == self.causes[:1]


def observe(name: str) -> Row:
    """One plant, diagnosed."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = diagnose_plant(PLANTED[name], Path(folder))
        probes = [str(r.meta.pins["probe"]) for r in done.records[1:]]
    found = done.diagnosis
    conclusions = {f.name: str(f.conclusion) for f in found.findings}
    supported = [f.name for f in found.supported]
    return Row(name, list(PLANTED[name].causes), conclusions, supported, time.monotonic() - begun, probes)


def matrix(rows: Sequence[Row]) -> str:
    """The matrix as Markdown: plants down, hypotheses across."""
    names = list(HYPOTHESES)
    lines = [f"| planted | right | {' | '.join(str(i) for i in range(1, len(names) + 1))} | probes | s |"]
    lines.append(f"|---|---|{'---|' * len(names)}---|---|")
    for row in rows:
        cells = []
        for name in names:
            letter = LETTERS[row.conclusions[name]]
            cells.append(f"**{letter}**" if name in row.causes else letter)
        probes = ", ".join(p.replace("_", " ") for p in row.probes) or "none"
        lines.append(
            f"| {row.plant} | {'yes' if row.right else 'no'} | {' | '.join(cells)} | {probes} | {row.seconds:.0f} |"
        )
    key = ", ".join(f"{i} {name}" for i, name in enumerate(names, 1))
    right = sum(row.right for row in rows)
    return "\n".join(
        [
            f"{right} of {len(rows)} plants: exactly the planted causes supported, the largest first.",
            "",
            "S supported, ? undecided, · refuted; bold is what was planted.",
            "",
            *lines,
            "",
            f"Hypotheses: {key}.",
        ]
    )


def publish(text: str) -> None:
    """Puts the matrix between its marks in the docs."""
    page = DOCS.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    DOCS.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="plants; all unless given")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="publish in docs/diagnosis.md")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="rows of earlier calls; nothing is planted")
    options = parser.parse_args()
    rows = [Row(**row) for path in options.join for row in json.loads(path.read_text())]
    rows.sort(key=lambda row: list(PLANTED).index(row.plant))
    for _ in range(0 if options.join else options.rounds):
        for name in options.names or PLANTED:
            rows.append(observe(name))
            print(
                f"{'right' if rows[-1].right else 'WRONG'}  {name}: {rows[-1].supported}  {rows[-1].seconds:.0f} s",
                flush=True,
            )
    text = matrix(rows)
    print(text)
    if options.write:
        publish(text)
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
