"""How long all placements of one model on the whole catalogue take: ``PYTHONPATH=src python -m benchmarks.plan_speed``.

Arguments are model files; without any, the fixtures of the tests. Each is planned five times after imports; the first,
the median, the fastest and the processor time are printed, with the number of candidates.
"""

import statistics
import sys
import time
from pathlib import Path

from setpoint.models.resolve import model_from
from setpoint.sizing.engine import engine_of
from setpoint.sizing.need import need_of
from setpoint.sizing.placement import Question
from setpoint.sizing.planner import plan_placements
from setpoint.workload.reading import load_card

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "models" / "fixtures"
CARD = ROOT / "tests" / "sizing" / "cards" / "support-chat.yaml"


def main(paths: list[str]) -> None:
    need = need_of(load_card(CARD))
    for path in paths or sorted(map(str, FIXTURES.glob("*/config.json"))):
        model = model_from(path)
        taken, processor = [], []
        for _ in range(5):
            start, used = time.perf_counter(), time.process_time()
            plan = plan_placements(Question(model, engine_of("vllm", "0.27.0"), need=need))
            taken.append(time.perf_counter() - start)
            processor.append(time.process_time() - used)
        name = Path(path).parent.name if Path(path).name == "config.json" else Path(path).stem
        print(
            f"{name}: first {taken[0]:.2f} s, "
            f"median {statistics.median(taken):.2f} s, "
            f"fastest {min(taken):.2f} s, processor {statistics.median(processor):.2f} s, "
            f"{len(plan.placements)} placements, {len(plan.rejected)} rejected"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
