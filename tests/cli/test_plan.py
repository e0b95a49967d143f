"""``setpoint plan``, ``models show`` and ``hardware`` as a user types them."""

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import answer, environment, one_message, setpoint, spawned
from tests.models.folders import GPT_OSS, LLAMA_70B, QWEN_MOE

from setpoint.cli import run
from setpoint.records.plans import plan_path
from setpoint.workload.templates import template

LOG = """\
INFO vLLM API server version 0.22.0
Model loading took 65.80 GiB memory and 33.8 seconds
Available KV cache memory: 2.95 GiB
total_gpu_memory (79.18GiB)
gpu_memory_utilization=0.90
tensor_parallel_size=2
Maximum concurrency for 16,384 tokens per request: 1.15x
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chat.yaml").write_text(template("chat"), encoding="utf-8")
    for model in (LLAMA_70B, GPT_OSS, QWEN_MOE):
        shutil.copytree(model, tmp_path / model.name)
    return tmp_path


def test_a_card_gets_ranked_placements_and_a_record(folder: Path) -> None:
    done = spawned(folder, "plan", "chat.yaml", "--model", QWEN_MOE.name, "--hardware", "H100-SXM:2", COLUMNS="200")
    assert done.returncode == 0
    for word in ("Qwen3-30B-A3B on H100-SXM:1", "keeps every promise", "activations", "assumed", "fails:", "USD/unit"):
        assert word in done.stdout
    kept = plan_path(Path(".setpoint/runs"), "support-chat", "acme/Qwen3-30B-A3B")
    assert done.stderr == f"plan: {kept}\n"
    assert json.loads((folder / kept).read_text())["state"] == "met"


def test_json_has_every_figure_with_its_origin(folder: Path) -> None:
    done = setpoint(
        folder, "plan", "chat.yaml", "--model", QWEN_MOE.name, "--hardware", "H100-SXM:2", "--json", "--top", "3",
        "--hosted", "0.5,2", "--spare", "1",
    )  # fmt: skip
    found = answer(done)
    assert (done.returncode, found["state"], len(found["placements"])) == (0, "met", 3)
    assert found["model"]["parameters"] == pytest.approx(30.5e9, rel=0.01)
    best = found["placements"][0]
    assert all(term["origin"] in ("computed", "assumed") for term in best["memory"]["terms"])
    assert best["accelerator"]["figures"]["usable_bytes"]["origin"] == "logged"
    assert best["replicas"] == 2
    assert best["cost_usd"]["break_even_requests_per_s"] > 0
    assert sum(found["rejected_by_kind"].values()) == len(found["rejected"])


def test_without_a_card_a_table_of_contexts(folder: Path) -> None:
    done = setpoint(folder, "plan", "--model", GPT_OSS.name, "--hardware", "H100-SXM:2", "--max-model-len", "64k")
    assert done.returncode == 0
    assert "context tokens" in done.stdout
    assert "64,000" in done.stdout
    assert not (folder / ".setpoint").exists()


def test_exit_codes_follow_the_verdict(folder: Path) -> None:
    none = setpoint(folder, "plan", "chat.yaml", "--model", LLAMA_70B.name, "--hardware", "T4:1")
    assert none.returncode == 1
    assert "no placement keeps the card's promises and constraints; rejected for" in " ".join(none.stdout.split())
    regions = (folder / "chat.yaml").read_text() + "  regions: [eu-west]\n"
    (folder / "regions.yaml").write_text(regions)
    undecided = setpoint(folder, "plan", "regions.yaml", "--model", QWEN_MOE.name, "--hardware", "H100-SXM:1")
    assert undecided.returncode == 3
    assert "region undecided" in undecided.stdout


@pytest.mark.parametrize("arguments", [("plan", "chat.yaml"), ("plan",), ("models", "show", QWEN_MOE.name)])
def test_a_narrow_terminal_is_not_overrun(folder: Path, arguments: tuple[str, ...]) -> None:
    more = ("--model", QWEN_MOE.name, "--hardware", "H100-SXM:2") if arguments[0] == "plan" else ()
    done = setpoint(folder, *arguments, *more, COLUMNS="40")
    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 40


def test_a_reader_that_leaves_early_is_no_fault(folder: Path) -> None:
    command = f"{sys.executable} -m setpoint plan --model {QWEN_MOE.name} --hardware any --top 500 --json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=90
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_calibrate_solves_and_replans(folder: Path) -> None:
    (folder / "start.log").write_text(LOG)
    alone = setpoint(folder, "plan", "calibrate", "start.log")
    assert alone.returncode == 0
    assert "vLLM 0.22.0, 2 tensor-parallel ranks" in alone.stdout
    assert "activations  2.51" in alone.stdout
    done = setpoint(folder, "plan", "calibrate", "start.log", "--model", LLAMA_70B.name, "--json")
    found = answer(done)
    assert done.returncode == 0
    assert {t["origin"] for t in found["memory"]["terms"]} == {"logged"}
    assert found["memory"]["kv_bytes"]["expected"] == pytest.approx(2.95 * 2**30, rel=1e-3)
    assert [s["context_tokens"] for s in found["memory"]["sessions"]][-1] == 16384
    ranked = setpoint(
        folder, "plan", "--model", LLAMA_70B.name, "--hardware", "H100-SXM:2", "--log", "start.log", "--json"
    )
    terms = {t["origin"] for one in answer(ranked)["placements"] if one["tp"] == 2 for t in one["memory"]["terms"]}
    assert "logged" in terms


def test_a_log_without_the_device_asks_for_it(folder: Path) -> None:
    short = "\n".join(line for line in LOG.splitlines() if "total_gpu" not in line)
    (folder / "start.log").write_text(short)
    done = setpoint(folder, "plan", "calibrate", "start.log", "--model", LLAMA_70B.name)
    assert (done.returncode, "--device-memory" in one_message(done)) == (2, True)
    given = ("--device-memory", "79.18 GiB")
    assert setpoint(folder, "plan", "calibrate", "start.log", "--model", LLAMA_70B.name, *given).returncode in (0, 3)


def test_models_show(folder: Path) -> None:
    done = setpoint(folder, "models", "show", GPT_OSS.name)
    assert done.returncode == 0
    for word in ("116.79B", "MoE 4 of 128", "sliding 128", "Apache License 2.0", "openai_gptoss"):
        assert word in done.stdout
    found = answer(setpoint(folder, "models", "show", GPT_OSS.name, "--json"))
    assert found["precision"]["quantized"] == "mxfp4"
    assert found["kv_bytes"]["by_tokens"]["131072"] == pytest.approx(4.5 * 2**30, rel=0.01)


def test_hardware(folder: Path) -> None:
    listed = setpoint(folder, "hardware", "list", COLUMNS="120")
    assert (listed.returncode, "H100-SXM" in listed.stdout, "assumed" in listed.stdout) == (0, True, True)
    assert len(answer(setpoint(folder, "hardware", "list", "--json"))) >= 33
    shown = setpoint(folder, "hardware", "show", "h100 sxm")
    assert "79.2 GiB" in shown.stdout
    assert "logged" in shown.stdout
    (folder / "own.csv").write_text(
        "name,vendor,architecture,memory_gb,usable_gib,bandwidth_gb_per_s,bf16_tflops,link,link_gb_per_s,link_domain,"
        "server,bus_gb_per_s,network_gb_per_s,source,usd_per_hour\n"
        "MINE,NVIDIA,Hopper,80,79,3350,989,NVLink4,900,8,8,128,100,offer,1.5\n"
    )
    own = setpoint(
        folder, "plan", "chat.yaml", "--model", QWEN_MOE.name, "--hardware", "MINE:1", "--hardware-file", "own.csv"
    )
    assert own.returncode in (0, 3)
    assert "1.50" in own.stdout


def test_probe_measures_this_machine(folder: Path) -> None:
    done = setpoint(folder, "hardware", "probe", "--json")
    found = answer(done)
    assert done.returncode == 0
    assert all(one["low"] <= one["median"] <= one["high"] for one in found["measurements"])


def config(folder: Path, **changed: object) -> str:
    fields = json.loads((folder / QWEN_MOE.name / "config.json").read_text()) | changed
    (folder / "changed").mkdir()
    (folder / "changed" / "config.json").write_text(json.dumps(fields))
    return "changed"


def checkpoint(folder: Path, content: bytes) -> str:
    (folder / QWEN_MOE.name / "model.safetensors").write_bytes(content)
    return QWEN_MOE.name


def gguf(folder: Path, version: int) -> str:
    (folder / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
    return "x.gguf"


def deep(folder: Path) -> str:
    (folder / "deep.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    return "deep.json"


WRONG: dict[str, tuple[Callable[[Path], str], str]] = {
    "truncated header": (lambda f: checkpoint(f, b"\1\2"), "too few for a safetensors header; it is truncated"),
    "hostile header": (
        lambda f: checkpoint(f, struct.pack("<Q", 2**62)),
        "claims a header of 4611686018427387904 bytes",
    ),
    "unknown GGUF": (lambda f: gguf(f, 77), "version 77"),
    "contradictory heads": (lambda f: config(f, num_key_value_heads=5), "num_key_value_heads"),
    "unknown quantization": (lambda f: config(f, quantization_config={"quant_method": "magic"}), "quant_method"),
    "unknown type": (lambda f: config(f, model_type="nonsense"), "model_type is 'nonsense'"),
    "deep JSON": (deep, "nested"),
    "no model": (lambda _: "./nothing", "There is no model './nothing'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_model_that_is_not_understood_is_one_message(folder: Path, name: str) -> None:
    make, expected = WRONG[name]
    done = setpoint(folder, *(("plan", "--model") if name == "no model" else ("models", "show")), make(folder))
    assert done.returncode == 2
    assert expected in one_message(done)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--hardware", "H1000:2"), "No accelerator is called 'H1000'"),
        (("--hardware", "H100-SXM:0"), "whole number from 1"),
        (("--hardware", "H100-SXM:1,H100:2"), "names an accelerator twice"),
        (("--engine", "tgi"), "--engine is 'tgi'; expected vllm or sglang"),
        (("--engine-version", "banana"), "cannot be read"),
        (("--max-model-len", "many"), "--max-model-len is 'many'"),
        (("--max-model-len", "0"), "--max-model-len is '0'"),
        (("--hosted", "3"), "--hosted is '3'"),
        (("--hosted", "3,-1"), "not negative"),
        (("--log", "nothing.log"), "nothing.log cannot be read"),
        (("--log", "chat.yaml"), "no start-up log of vLLM or SGLang"),
        (("--hardware-file", "nothing.yaml"), "cannot be read"),
    ],
)
def test_wrong_options_are_one_message(
    folder: Path,
    arguments: tuple[str, ...],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert run(["plan", "chat.yaml", "--model", QWEN_MOE.name, *arguments]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert expected in said.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOG.replace("0.22.0", "0.1.0"), "The memory rules of vllm 0.1.0 are not known"),
        (LOG.replace("INFO vLLM API server version 0.22.0\n", ""), "does not state which version"),
        ("hello\n", "no start-up log"),
        (LOG.replace("Model loading took", "?"), "states no weights"),
    ],
)
def test_a_log_that_is_not_understood_is_one_message(folder: Path, text: str, expected: str) -> None:
    (folder / "start.log").write_text(text)
    done = setpoint(folder, "plan", "calibrate", "start.log")
    assert done.returncode == 2
    assert expected in one_message(done)


def test_a_mistyped_verb_is_guessed(folder: Path) -> None:
    done = setpoint(folder, "plan", "calibrat", "--model", QWEN_MOE.name)
    assert done.returncode == 2
    assert "Did you mean calibrate?" in one_message(done)


def test_embeddings_have_no_latency_model(folder: Path) -> None:
    (folder / "vectors.yaml").write_text(template("embeddings"))
    done = setpoint(folder, "plan", "vectors.yaml", "--model", QWEN_MOE.name)
    assert done.returncode == 2
    assert "embeddings" in one_message(done)


def test_no_network_is_an_environment_failure(folder: Path) -> None:
    done = setpoint(folder, "models", "show", "acme/tiny", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 4
    assert "cannot be reached" in one_message(done)


def test_help_names_both_forms(folder: Path) -> None:
    shown = setpoint(folder, "plan", "--help").stdout
    assert "calibrate" in shown
    assert "place" in shown
    assert "--hardware" in setpoint(folder, "plan", "place", "--help").stdout


def test_a_plan_that_cannot_be_kept_is_still_answered(folder: Path) -> None:
    (folder / ".setpoint").write_text("a file where a folder should be")
    done = setpoint(folder, "plan", "chat.yaml", "--model", QWEN_MOE.name, "--hardware", "H100-SXM:1", "--json")
    assert answer(done)["state"] == "met"
    assert "not kept" in done.stderr
