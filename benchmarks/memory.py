"""Peak memory of a run of a million exchanges: journal, Parquet, summary.

Two processes in the order of a real run. The worker journals synthetic exchanges; the parent creates the run, reads the
journal into a table, computes the summary while it holds the table, and closes the run (journal to Parquet). Nothing is
sent over a network.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.machine import machine, print_table, write

from setpoint.metrics.summary import summarise
from setpoint.metrics.table import ExchangeTable
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.records.writer import open_journal

RATE_PER_S = 1000.0


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def exchanges(count: int, chunks: int) -> Iterator[Exchange]:
    """Answers with their own gaps, so that nothing compresses better than real times do."""
    random = np.random.default_rng(1)
    for index in range(count):
        at = index / RATE_PER_S
        times = (at + 0.1 + np.cumsum(random.gamma(4.0, 0.0025, chunks))).tolist()
        yield Exchange(
            index=index, session=index, turn=0, warmup=False, worker=0, scheduled_s=at, started_s=at + 1e-5,
            connected_s=at + 2e-5, sent_s=at + 5e-5, headers_s=at + 0.09, first_token_s=times[0],
            first_visible_s=times[0], last_token_s=times[-1], done_s=times[-1] + 1e-3, chunk_s=times,
            chunk_tokens=[1] * chunks, chunk_kinds="c" * chunks, outcome=Outcome.LENGTH, status=200,
            finish_reason="length", error=None, retry_after_s=None, planned_prompt_tokens=512,
            planned_output_tokens=chunks, prompt_tokens=512, completion_tokens=chunks, cached_tokens=0,
            reasoning_tokens=None, tokens_source="usage", visible_chars=4 * chunks, reasoning_chars=0, tool_calls=0,
        )  # fmt: skip


def worker(run: Path, count: int, chunks: int) -> dict[str, float]:
    """Journals the exchanges."""
    begun = time.perf_counter()
    journal = open_journal(run, 0)
    for row in exchanges(count, chunks):
        journal.append(row)
    journal.close()
    return {
        "peak_bytes": peak_bytes(),
        "seconds": time.perf_counter() - begun,
        "file_bytes": journal.path.stat().st_size,
    }


def parent(root: Path, count: int, chunks: int) -> dict[str, dict[str, float]]:
    """Everything else, in the order of a real run."""
    found: dict[str, dict[str, float]] = {}
    writer = RunStore(root).create("memory")
    command = [
        sys.executable,
        "-m",
        "benchmarks.memory",
        "--stage",
        "worker",
        str(writer.path),
        str(count),
        str(chunks),
    ]
    found["worker: journal"] = json.loads(subprocess.check_output(command))
    begun = time.perf_counter()
    table = ExchangeTable.from_record(RunRecord(writer.path))
    found["parent: table"] = {"peak_bytes": peak_bytes(), "seconds": time.perf_counter() - begun, "file_bytes": 0}
    begun = time.perf_counter()
    summary = summarise(table)
    assert summary.answered == count
    assert summary.distributions["itl"].samples == count * (chunks - 1)
    found["parent: summary"] = {"peak_bytes": peak_bytes(), "seconds": time.perf_counter() - begun, "file_bytes": 0}
    begun = time.perf_counter()
    record = writer.finish()
    size = sum(path.stat().st_size for path in record.path.glob("*.parquet"))
    seconds = time.perf_counter() - begun
    found["parent: Parquet"] = {"peak_bytes": peak_bytes(), "seconds": seconds, "file_bytes": size}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--exchanges", type=int, default=1_000_000)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--stage", nargs=4, metavar=("NAME", "FOLDER", "COUNT", "CHUNKS"))
    options = parser.parse_args()
    if options.stage:
        name, folder, count, chunks = options.stage
        print(json.dumps((worker if name == "worker" else parent)(Path(folder), int(count), int(chunks))))
        return
    if options.out is None:
        parser.error("--out is needed")
    before = machine()
    sizes = (str(options.exchanges), str(options.chunks))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.memory", "--stage", "parent", folder, *sizes]
        found = json.loads(subprocess.check_output(command))
    print_table(
        ("process: stage", "peak RSS so far, MiB", "seconds", "file, MiB"),
        [
            (name, *(f"{value:,.0f}" for value in (f["peak_bytes"] / 2**20, f["seconds"], f["file_bytes"] / 2**20)))
            for name, f in found.items()
        ],
    )
    write(options.out, before, {"exchanges": options.exchanges, "chunks": options.chunks, "stages": found})


if __name__ == "__main__":
    main()
