"""Plants every bottleneck, diagnoses each, and publishes the confusion matrix in docs/diagnosis.md.

    PYTHONPATH=src python -m benchmarks.confusion [--real] [NAME ...] [--rounds 1] [--write]

Without ``--real`` on the fake engine, with it on llama.cpp. In pieces: ``--json FILE`` each, then ``--join FILE ...``.
A plant passes when its causes, and only they, are supported, the largest first.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.planted_run import diagnose_plant

from setpoint.diagnosis.hypotheses import HYPOTHESES
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.signs import starved_share
from setpoint.testing.planted import PLANTED
from setpoint.testing.planted_real import PLANTED_REAL

DOCS = Path(__file__).parents[1] / "docs/diagnosis.md"
MARKS = {
    False: ("<!-- confusion matrix -->", "<!-- end of the matrix -->"),
    True: ("<!-- matrix of a real engine -->", "<!-- end of the real matrix -->"),
}
REAL_BUDGET_S = 180.0
LETTERS = {"supported": "S", "undecided": "?", "refuted": "·"}


@dataclass
class Row:
    """What became of one plant.

    Attributes:
        plant: Its name.
        causes: What was planted.
        conclusions: By hypothesis.
        supported: Hypotheses, the largest share first.
        seconds: Of the whole, everything started included.
        probes: That were run.
        shares: Of the supported hypotheses.
        starved: Share of the engine's time that it waited for a CPU during the subject; None when not read.
    """

    plant: str
    causes: list[str]
    conclusions: dict[str, str]
    supported: list[str]
    seconds: float
    probes: list[str]
    shares: list[float] = field(default_factory=list)
    starved: float | None = None

    @property
    def right(self) -> bool:
        """Whether exactly the planted causes are supported, the main one first."""
        return set(self.supported) == set(self.causes) and self.supported[:1] == self.causes[:1]


def observe(name: str) -> Row:
    """One plant, diagnosed."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if name in PLANTED:
            done = diagnose_plant(PLANTED[name], Path(folder))
        else:
            done = diagnose_plant(PLANTED_REAL[name], Path(folder), REAL_BUDGET_S, note=print)
        starved = starved_share(Observation.from_record(done.records[0]))
        probes = [str(r.meta.pins["probe"]) for r in done.records[1:]]
    found = done.diagnosis
    conclusions = {f.name: str(f.conclusion) for f in found.findings}
    supported = [f.name for f in found.supported]
    for f in found.findings:
        if f.conclusion != "refuted":
            print(f"  {f.conclusion} {f.name}: {f.reason}", *f.evidence, sep="\n      ", flush=True)
    shares = [f.share.value for f in found.supported if f.share is not None]
    causes = list((PLANTED | PLANTED_REAL)[name].causes)
    return Row(name, causes, conclusions, supported, time.monotonic() - begun, probes, shares, starved)


def matrix(rows: Sequence[Row]) -> str:
    """The matrix as Markdown: plants down, hypotheses across."""
    names = list(HYPOTHESES)
    lines = [f"| planted | right | {' | '.join(str(i) for i in range(1, len(names) + 1))} | probes | no CPU | s |"]
    lines.append(f"|---|---|{'---|' * len(names)}---|---|---|")
    for row in rows:
        cells = []
        for name in names:
            letter = LETTERS[row.conclusions[name]]
            cells.append(f"**{letter}**" if name in row.causes else letter)
        probes = ", ".join(p.replace("_", " ") for p in row.probes) or "none"
        starved = "" if row.starved is None else f"{row.starved:.0%}"
        right = "yes" if row.right else "no"
        lines.append(f"| {row.plant} | {right} | {' | '.join(cells)} | {probes} | {starved} | {row.seconds:.0f} |")
    key = ", ".join(f"{i} {name}" for i, name in enumerate(names, 1))
    count = sum(row.right for row in rows)
    return "\n".join(
        [
            f"{count} of {len(rows)} plants: exactly the planted causes supported, the largest first.",
            "",
            "S supported, ? undecided, · refuted; bold is what was planted; *no CPU* is the share of its time that",
            "the engine's process was ready to run and did not.",
            "",
            *lines,
            "",
            f"Hypotheses: {key}.",
        ]
    )


def publish(text: str, *, real: bool) -> None:
    """Puts the matrix between its marks in the docs."""
    begin, end = MARKS[real]
    page = DOCS.read_text(encoding="utf-8")
    head, rest = page.split(begin, 1)
    tail = rest.split(end, 1)[1]
    DOCS.write_text(f"{head}{begin}\n{text}\n{end}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="plants; all unless given")
    parser.add_argument("--real", action="store_true", help="on llama.cpp instead of the fake engine")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="publish in docs/diagnosis.md")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="rows of earlier calls; nothing is planted")
    options = parser.parse_args()
    rows = [Row(**row) for path in options.join for row in json.loads(path.read_text())]
    plants = PLANTED_REAL if options.real else PLANTED
    rows.sort(key=lambda row: list(plants).index(row.plant))
    for _ in range(0 if options.join else options.rounds):
        for name in options.names or plants:
            rows.append(observe(name))
            print(
                f"{'right' if rows[-1].right else 'WRONG'}  {name}: {rows[-1].supported}  {rows[-1].seconds:.0f} s",
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    text = matrix(rows)
    print(text)
    if options.write:
        publish(text, real=options.real)


if __name__ == "__main__":
    main()
