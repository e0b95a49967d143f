"""vLLM for real, in its own environment; run by ``make test-vllm`` (about 3.5 GB)."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.cli.command import CARD, answer, setpoint, spawned
from tests.embedded import embedded_model

from setpoint.engines.environments import checkpoint_of
from setpoint.engines.registry import engine_named
from setpoint.engines.signals import SignalSampler
from setpoint.engines.supervisor import start
from setpoint.errors import EngineError
from setpoint.records.signal import SignalState

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
VLLM = engine_named("vllm")


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return checkpoint_of(embedded_model(), "vllm", print)


def test_the_embedded_model_becomes_a_checkpoint(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in config
    assert (checkpoint / "chat_template.jinja").exists()
    assert list(checkpoint.glob("*.safetensors"))
    assert not list(checkpoint.glob("*.bin"))


def test_a_card_is_measured_on_vllm(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text(CARD.replace("60/s", "2/s").replace("2s", "15s"), encoding="utf-8")
    flags = ("--flag", "enforce-eager=true", "--flag", "max-model-len=1024", "--flag", "max-num-seqs=8")
    done = spawned(
        tmp_path, "bench", "card.yaml", "--engine", "vllm", "--model", "smollm2-135m-instruct", *flags, limit_s=600
    )
    assert done.returncode in (0, 1, 3), done.stderr
    shown = answer(setpoint(tmp_path, "runs", "show", "latest", "--json"))
    assert shown["status"] == "complete"
    assert shown["pins"]["engine"] == "vllm"
    assert shown["pins"]["engine_flags"]["max-num-seqs"] == "8"
    assert shown["pins"]["output_lengths"] == "forced"
    assert shown["pins"]["prompt_lengths"] == "measured tokens"
    assert shown["summary"]["answered"] > 10


def test_signals_of_vllm(checkpoint: Path, tmp_path: Path) -> None:
    flags = {"enforce-eager": "true", "max-model-len": "1024"}
    with start(VLLM, checkpoint, "smol", log=tmp_path / "engine.log", flags=flags) as running:
        rows = {r.signal: r for r in asyncio.run(SignalSampler(running.target, "vllm")(0.0))}
    for name in ("requests_running", "requests_waiting", "kv_usage", "prompt_tokens", "ttft_sum"):
        assert rows[name].state is SignalState.OK, rows[name]


def test_an_unknown_flag_is_told(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="a flag is not known to this version"):
        start(VLLM, checkpoint, "smol", log=tmp_path / "engine.log", flags={"no-such-flag": "1"})
