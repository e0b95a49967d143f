"""Result files of other load generators: small files in each tool's form; that of GuideLLM 0.8.1 is recorded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import answer, setpoint

from setpoint.cli import run
from setpoint.errors import UsageError
from setpoint.experiments.imports import FORMATS, import_file, recognise
from setpoint.metrics.definitions import METRICS
from setpoint.metrics.table import ExchangeTable
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore

RESULTS = Path(__file__).parent / "results"
FILES = {
    "vllm": RESULTS / "vllm-0.30.json",
    "guidellm": RESULTS / "guidellm-0.6.json",
    "aiperf": RESULTS / "aiperf-0.14.jsonl",
    "inference-perf": RESULTS / "inference-perf.json",
}


def imported(path: Path, tmp_path: Path) -> list[RunRecord]:
    return import_file(path, RunStore(tmp_path / "runs"))


def values(record: RunRecord, metric: str) -> list[float]:
    table = ExchangeTable.from_record(record).measured
    found, _ = METRICS[metric].observed(table)
    return [round(float(x), 6) for x in found]


def changed(name: str, tmp_path: Path, change: Any) -> Path:  # noqa: ANN401 - a function of the parsed file
    body = json.loads(FILES[name].read_text())
    change(body)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(body))
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_recognised_and_says_what_it_lacks(name: str, tmp_path: Path) -> None:
    assert recognise(FILES[name].read_bytes()) == name
    for record in imported(FILES[name], tmp_path):
        assert record.complete
        assert record.meta.pins["imported_from"] == name
        assert any("certificate" in note for note in record.meta.notes)
        assert any(note.startswith("Lacks: engine, its version") for note in record.meta.notes)
        assert record.meta.verdicts == []


def test_vllm_keeps_chunks_and_failures(tmp_path: Path) -> None:
    [record] = imported(FILES["vllm"], tmp_path)
    assert values(record, "ttft") == [0.05, 0.07]
    assert values(record, "itl") == [0.01, 0.012, 0.02]
    assert values(record, "e2e") == [0.08, 0.095]
    assert ExchangeTable.from_record(record).outcomes() == {"complete": 2, "error": 1}
    assert record.meta.pins["model"] == "Qwen/Qwen3-0.6B"
    assert record.exchanges(["tokens_source"])["tokens_source"].unique().to_list() == ["tool"]


def test_a_recorded_run_of_vllm_agrees_with_its_own_summary(tmp_path: Path) -> None:
    """24 requests of which vLLM 0.32.0 calls 18 good: those that were cut off, or were empty, are among them."""
    path = RESULTS / "vllm-0.32.0.json"
    told = json.loads(path.read_text())
    [record] = imported(path, tmp_path)
    table = ExchangeTable.from_record(record).measured
    assert table.outcomes() == {"complete": told["completed"], "error": told["failed"]}
    good = table.answered
    assert table.output_tokens[good].sum() == told["total_output_tokens"]
    ttft = 1000 * (table.first_token_s - table.sent_s)[good]
    assert [ttft.mean(), np.median(ttft), np.quantile(ttft, 0.99)] == pytest.approx(
        [told[f"{name}_ttft_ms"] for name in ("mean", "median", "p99")], abs=1e-6
    )
    gaps = 1000 * METRICS["itl"].observed(table)[0]
    assert [gaps.mean(), np.median(gaps)] == pytest.approx([told["mean_itl_ms"], told["median_itl_ms"]], abs=1e-4)
    # It ends TTFT with the first chunk: here a role without any text, 6 ms and more before the first token.
    assert any("16 of 18 answers have more chunks than tokens" in note for note in record.meta.notes)


def test_vllm_without_details_or_start_times_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--save-detailed"):
        imported(changed("vllm", tmp_path, lambda b: b.pop("ttfts")), tmp_path)
    with pytest.raises(UsageError, match="start_times"):
        imported(changed("vllm", tmp_path, lambda b: b.pop("start_times")), tmp_path)


def test_vllm_columns_must_agree_and_have_their_types(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ttfts has 2"):
        imported(changed("vllm", tmp_path, lambda b: b["ttfts"].pop()), tmp_path)
    with pytest.raises(UsageError, match=r"\$\.input_lens\[0\]"):
        imported(changed("vllm", tmp_path, lambda b: b["input_lens"].__setitem__(0, "many")), tmp_path)


def test_guidellm_gives_a_run_a_benchmark_with_tpot_and_without_itl(tmp_path: Path) -> None:
    first, second = imported(FILES["guidellm"], tmp_path)
    assert first.meta.series is not None
    assert second.meta.series is not None
    assert (first.meta.series.step, second.meta.series.step) == (0, 1)
    assert first.meta.pins["load"] == "constant rate 2.0"
    assert values(first, "ttft") == [0.12, 0.2]
    assert values(first, "tpot") == [0.02, 0.03]
    assert values(first, "itl") == []
    assert ExchangeTable.from_record(first).outcomes() == {"complete": 2, "timeout": 1, "cancelled": 1}
    assert any("no ITL" in note for note in first.meta.notes)


def test_guidellm_counts_the_wait_of_a_request_that_was_sent_late(tmp_path: Path) -> None:
    first, _ = imported(FILES["guidellm"], tmp_path)
    table = ExchangeTable.from_record(first)
    assert float(table.scheduled_s[0]) == 0.0
    assert float(table.started_s[0]) == pytest.approx(0.02)


def test_a_recorded_guidellm_report_of_schema_2_agrees_with_its_own_summary(tmp_path: Path) -> None:
    """GuideLLM counts from the actual send, and calls ITL what is TPOT here, weighted by tokens."""
    path = RESULTS / "guidellm-0.8.1.json"
    [record] = imported(path, tmp_path)
    table = ExchangeTable.from_record(record).measured
    told = json.loads(path.read_text())["benchmarks"][0]["metrics"]
    assert table.outcomes() == {"complete": told["request_totals"]["successful"]}
    assert record.meta.pins["model"] == "fake"
    for name, ours, scale in (
        ("time_to_first_token_ms", table.first_visible_s - table.sent_s, 1e-3),
        ("inter_token_latency_ms", METRICS["tpot"].observed(table)[0], 1e-3),
        ("request_latency", table.done_s - table.started_s, 1.0),
    ):
        theirs = told[name]["successful"]
        found = [ours.mean(), ours.min(), ours.max()]
        assert found == pytest.approx([theirs[k] * scale for k in ("mean", "min", "max")], abs=2e-6)
    weights = told["inter_token_latency_ms"]["successful"]["count"]
    assert weights == (table.output_tokens - 1).sum()  # every answer has 12 tokens, so that its mean is TPOT's


def test_a_newer_guidellm_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"metadata\.version is 3"):
        imported(changed("guidellm", tmp_path, lambda b: b["metadata"].__setitem__("version", 3)), tmp_path)


def test_aiperf_reads_units_phases_turns_and_cancellations(tmp_path: Path) -> None:
    [record] = imported(FILES["aiperf"], tmp_path)
    assert values(record, "ttft") == [0.05, 0.04]
    assert values(record, "itl") == [0.005, 0.006, 0.004]
    table = ExchangeTable.from_record(record)
    assert table.outcomes() == {"complete": 3, "cancelled": 1, "rejected": 1}
    assert int(table.warmup.sum()) == 1
    turns = {(int(s), int(t)) for s, t in zip(table.session, table.turn, strict=True)}
    assert len(turns) == 5


def test_a_recorded_aiperf_run_agrees_with_its_own_summary(tmp_path: Path) -> None:
    """24 requests of which AIPerf 0.13.0 calls 16 good: answers that were cut off, or held an error, are among them."""
    [record] = imported(RESULTS / "aiperf-0.13.0.jsonl", tmp_path)
    table = ExchangeTable.from_record(record).measured
    assert table.outcomes() == {"complete": 16, "rejected": 2, "error": 6}
    assert any("cut off counts as complete" in note for note in record.meta.notes)
    assert any("who counted" in note for note in record.meta.notes)  # those that were cut off came without usage
    sources = record.exchanges(["tokens_source"])["tokens_source"].to_list()
    assert (sources.count("usage"), sources.count("tool")) == (12, 12)
    good = table.answered
    told = {  # in its profile_export_aiperf.json, milliseconds: mean, least, median, p90, most
        "time_to_first_token": [13.413852, 9.313518, 9.74596, 22.076942, 28.808021],
        "request_latency": [95.282687, 57.21384, 104.46471, 108.631186, 113.381106],
    }
    assert (table.output_tokens[good] == 12).sum() == 12
    assert (table.output_tokens[good] == 6).sum() == 4
    for name, ours in (
        ("time_to_first_token", (table.first_token_s - table.started_s)[good]),
        ("request_latency", (table.done_s - table.started_s)[good]),
    ):
        found = [ours.mean(), ours.min(), *np.quantile(ours, [0.5, 0.9]), ours.max()]
        assert [1000 * x for x in found] == pytest.approx(told[name], abs=0.02), name
    # What it calls inter-token latency is TPOT here: from the first token to the last byte over tokens less one.
    ends = (table.done_s - table.first_token_s)[good] / (table.output_tokens[good] - 1)
    assert 1000 * ends.mean() == pytest.approx(8.689026, abs=0.02)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"unit":"ms"', '"unit":"weeks"', "weeks"),
        ('"request_start_ns":1000000000', '"request_start_ns":"soon"', "line 1"),
        ('"value":50.0', '"value":-1', "time_to_first_token"),
    ],
)
def test_a_malformed_aiperf_record_names_the_field(tmp_path: Path, old: str, new: str, field: str) -> None:
    text = FILES["aiperf"].read_text()
    assert old in text
    path = tmp_path / "bad.jsonl"
    path.write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=field):
        imported(path, tmp_path)


def test_inference_perf_reads_both_forms_and_no_text(tmp_path: Path) -> None:
    [record] = imported(FILES["inference-perf"], tmp_path)
    assert values(record, "ttft") == [0.1, 0.2]
    assert values(record, "itl") == [0.01, 0.01, 0.03]
    assert ExchangeTable.from_record(record).outcomes() == {"complete": 2, "rejected": 1}
    assert record.exchanges(["cached_tokens"])["cached_tokens"].to_list() == [None, 16, None]
    assert record.meta.pins["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    kept = b"".join(p.read_bytes() for p in record.path.iterdir())
    assert b"secret words" not in kept


def test_imported_runs_are_compared_by_what_the_user_knows_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ["runs", "--runs", str(tmp_path / "runs")]
    found = []
    for slots in ("4", "8"):
        command = [*runs, "import", str(FILES["vllm"]), "--pin", f"engine_flags.slots={slots}", "--json"]
        assert run(command) == 0
        [told] = json.loads(capsys.readouterr().out)
        assert f"Told by whoever imported it: engine_flags.slots={slots}." in told["notes"]
        found.append(told["run"])
    assert run([*runs, "compare", *found, "--variable", "engine_flags.slots", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert [c["pin"] for c in compared["changes"]] == ["engine_flags.slots"]
    assert "hardware" in compared["unknown"]
    assert run([*runs, "compare", *found, "--variable", "load"]) == 2
    assert "differ in more than load" in capsys.readouterr().err


def test_other_files_are_refused_with_the_formats_that_are_known(tmp_path: Path) -> None:
    for content in ("", "{}", "[]", "hello", '{"benchmarks": []}'):
        path = tmp_path / "other.json"
        path.write_text(content)
        with pytest.raises(UsageError):
            imported(path, tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        imported(tmp_path / "absent.json", tmp_path)


def test_the_command_imports_and_prints_what_is_missing(tmp_path: Path) -> None:
    done = setpoint(tmp_path, "runs", "import", str(FILES["vllm"]), "--json")
    assert done.returncode == 0, done.stderr
    [found] = answer(done)
    assert found["exchanges"] == 3
    shown = setpoint(tmp_path, "runs", "show", found["run"])
    assert shown.returncode == 3, shown.stderr  # no promise was made, so nothing is decided
    assert "promises nothing" in shown.stdout
