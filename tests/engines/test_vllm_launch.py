"""How vLLM is started, told how it died, and asked for its events; nothing is started here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from setpoint.engines import vllm
from setpoint.engines.adapter import Plan
from setpoint.engines.supervisor import describe_death
from setpoint.engines.vllm import VLLM


@pytest.fixture(autouse=True)
def _cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, where vLLM is installed."""
    monkeypatch.setattr(vllm, "python_of", lambda _: Path("/env/bin/python"))
    monkeypatch.setattr(vllm, "has_gpu", lambda: False)
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)


def command(**flags: str) -> list[str]:
    plan = Plan(Path("/model"), "m", 1, "key", {name.replace("_", "-"): value for name, value in flags.items()})
    return list(VLLM.launch(plan).argv)


def test_a_switch_is_turned_on_and_off() -> None:
    """``--enable-prefix-caching false`` is no command line of vLLM."""
    assert command(enforce_eager="true", enable_prefix_caching="false", max_num_seqs="4")[-4:] == [
        "--enforce-eager",
        "--no-enable-prefix-caching",
        "--max-num-seqs",
        "4",
    ]


@pytest.mark.parametrize(("distribution", "version"), [("vllm", "1.2"), ("vllm-cpu", "1.2+cpu"), (None, "")])
def test_the_command_finds_its_version_whatever_its_distribution_is_called(
    tmp_path: Path, distribution: str | None, version: str
) -> None:
    """A package ``vllm`` whose command asks, as vLLM's does, for the version of the distribution ``vllm``."""
    folder = tmp_path / "vllm" / "entrypoints" / "cli"
    folder.mkdir(parents=True)
    asks = (
        "import importlib.metadata as m, sys\ndef main(): print(m.version('vllm'), m.version('pytest'), sys.argv[1:])"
    )
    (folder / "main.py").write_text(asks, encoding="utf-8")
    if distribution is not None:
        about = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    argv = [sys.executable, *command(max_num_seqs="4")[1:]]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if distribution is None:
        assert "PackageNotFoundError" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{version} {pytest.__version__} ['serve', '/model', '--served-model-name', 'm', ")


def test_the_cache_on_a_cpu_is_a_flag_that_the_users_own_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a variable it would win over the user's flag."""
    assert VLLM.default_flags() == {"kv-cache-memory-bytes": str(2**30)}
    assert "VLLM_CPU_KVCACHE_SPACE" not in VLLM.launch(Plan(Path(), "m", 1, "key", {})).env
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "4")
    assert VLLM.default_flags() == {}
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE")
    monkeypatch.setattr(vllm, "has_gpu", lambda: True)
    assert VLLM.default_flags() == {}


def test_events_are_told_at_the_addresses_that_were_named() -> None:
    assert VLLM.kv_events is not None
    told = json.loads(VLLM.kv_events("ipc:///a", "ipc:///b")["kv-events-config"])
    assert (told["enable_kv_cache_events"], told["publisher"]) == (True, "zmq")
    assert (told["endpoint"], told["replay_endpoint"]) == ("ipc:///a", "ipc:///b")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("EngineDeadError: EngineCore encountered an issue.", "EngineCore) has died"),
        ("MemoryError: out of memory\nEngineDeadError: EngineCore encountered an issue.", "it ran out of memory"),
        ("(4/8 GiB) on startup is less than desired CPU memory utilization", "less free memory than its KV cache"),
    ],
)
def test_a_death_has_its_cause_and_not_the_compilers_last_words(tmp_path: Path, line: str, cause: str) -> None:
    log = tmp_path / "engine.log"
    noise = 'nanobind: leaked 2 types!\n - leaked type "triton"\n - ... skipped remainder\n'
    log.write_text(f"{line}\n{noise}", encoding="utf-8")
    said = describe_death(VLLM, 0, log)
    assert cause in said
    assert said.endswith(line.splitlines()[-1])
