"""A plan's placement becomes a deployment with the same words."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.command import setpoint

from setpoint.errors import UsageError
from setpoint.fleet.from_plan import deployment_from_plan
from setpoint.fleet.reading import parse_deployment

PLACEMENT = {
    "placement": "H100-SXM:4 TP2 PP2 fp8, KV fp8", "tp": 2, "pp": 2, "dp": 1, "expert_parallel": True, "weights": "fp8",
    "as_stored": False, "kv_dtype": "fp8", "replicas": 3, "state": "met",
}  # fmt: skip
PLAN = {
    "schema_version": 1, "kind": "plan", "model": {"name": "Qwen3-32B"}, "engine": "vLLM 0.27.0", "max_model_len": 7168,
    "placements": [PLACEMENT, PLACEMENT | {"weights": "int4", "kv_dtype": "auto", "tp": 1, "pp": 1, "replicas": 1}],
}  # fmt: skip


def written(folder: Path, plan: Any) -> Path:
    path = folder / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    return path


def test_the_best_placement_is_deployed(tmp_path: Path) -> None:
    text, notes = deployment_from_plan(written(tmp_path, PLAN), model="hf://Qwen/Qwen3-32B")
    served = parse_deployment(text.encode(), "d.yaml").models["Qwen3-32B"]
    assert (served.engine, served.replicas, served.model) == ("vllm", 3, "hf://Qwen/Qwen3-32B")
    assert served.flags == {
        "max-model-len": "7168",
        "tensor-parallel-size": "2",
        "pipeline-parallel-size": "2",
        "enable-expert-parallel": "true",
        "kv-cache-dtype": "fp8",
        "quantization": "fp8",
    }
    assert "planned for vLLM 0.27.0" in notes[0]


def test_weights_that_need_another_checkpoint_are_told(tmp_path: Path) -> None:
    text, notes = deployment_from_plan(written(tmp_path, PLAN), model="hf://Qwen/Qwen3-32B", choice=2)
    flags = parse_deployment(text.encode(), "d.yaml").models["Qwen3-32B"].flags
    assert flags == {"max-model-len": "7168", "enable-expert-parallel": "true"}
    assert "int4" in notes[1]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (PLAN | {"engine": "SGLang 0.5.13"}, "only vLLM"),
        (PLAN | {"placements": []}, "no number 1"),
        (PLAN | {"schema_version": 9}, "no plan of this version"),
        ({"kind": "plan"}, "no plan of this version"),
    ],
)
def test_what_cannot_be_deployed_is_told(tmp_path: Path, plan: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        deployment_from_plan(written(tmp_path, plan), model="x")


def test_a_plan_as_it_is_printed_is_deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = Path(__file__).parents[1] / "recorded/model_configs/Qwen--Qwen3-8B.json"
    (tmp_path / "Qwen3-8B").mkdir()
    (tmp_path / "Qwen3-8B" / "config.json").write_bytes(config.read_bytes())
    planned = setpoint(tmp_path, "plan", "--model", "Qwen3-8B", "--hardware", "H100-SXM:1", "--json")
    (tmp_path / "plan.json").write_text(planned.stdout, encoding="utf-8")
    done = setpoint(tmp_path, "serve", "from-plan", "plan.json", "--model", "Qwen3-8B")
    assert done.returncode == 0, done.stderr
    assert parse_deployment(done.stdout.encode(), "d.yaml").models["Qwen3-8B"].engine == "vllm"
