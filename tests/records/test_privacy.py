"""No credential, host name or user name reaches a record."""

import getpass
import json
import platform
from pathlib import Path

import pytest

from setpoint.records.environment import container_cpus, container_memory_bytes, environment
from setpoint.records.meta import target_facts
from setpoint.records.redaction import redacted
from setpoint.records.store import RunStore
from setpoint.records.target import Dialect, Target

KEY = "sk-live-0123456789"


@pytest.mark.parametrize(
    "value",
    [
        {"api_key": KEY},
        {"API-Key": KEY},
        {"headers": {"Authorization": f"Bearer {KEY}"}},
        {"engine_flags": {"--api-key": KEY, "max_num_seqs": 4}},
        {"argv": ["serve", "--api-key", KEY, "--port", "1"]},
        {"argv": ["serve", f"--hf-token={KEY}"]},
        {"url": f"http://user:{KEY}@host:8000/v1"},
        [{"password": KEY}],
        {"x_secret": KEY},
    ],
)
def test_credentials_are_redacted_wherever_they_hide(value: object) -> None:
    assert KEY not in json.dumps(redacted(value))


@pytest.mark.parametrize(
    "value",
    [
        {"prompt_tokens": 5, "max_tokens": "12", "tokens_source": "usage", "keys": ["a"]},
        {"argv": ["--max-tokens", "5", "--port", "8000"]},
        {"url": "http://host:8000/v1?x=a@b"},
        {"n": None, "f": 1.5, "ok": True, "nested": [{"a": [1, "b"]}]},
    ],
)
def test_other_facts_are_kept(value: object) -> None:
    assert redacted(value) == value


def test_a_run_never_holds_the_key_of_its_target(tmp_path: Path) -> None:
    target = Target(f"https://me:{KEY}@example.org/api", Dialect.CHAT, "m", api_key=KEY)
    writer = RunStore(tmp_path).create("chat")
    writer.update(target=target_facts(target), pins={"flags": ["--api-key", KEY]}, notes=[f"http://a:{KEY}@b"])
    writer.log("request", headers={"authorization": KEY}, api_key=KEY)
    record = writer.finish()
    assert record.meta.target == {
        "base_url": "https://example.org/api",
        "dialect": "openai-chat",
        "model": "m",
        "metrics_url": None,
        "verify_tls": True,
    }
    for path in record.path.iterdir():
        assert KEY.encode() not in path.read_bytes()


def test_the_environment_names_neither_host_nor_user() -> None:
    facts = environment()
    words = json.dumps(facts)
    assert facts["cores_logical"] >= 1
    assert facts["memory_bytes"] > 2**20
    assert facts["python"].startswith("CPython 3.")
    assert platform.node() not in words
    assert f'"{getpass.getuser()}"' not in words


def test_container_limits_are_read_in_both_versions(tmp_path: Path) -> None:
    assert (container_cpus(tmp_path), container_memory_bytes(tmp_path)) == (None, None)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (container_cpus(tmp_path), container_memory_bytes(tmp_path)) == (None, None)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1073741824\n")
    assert (container_cpus(tmp_path), container_memory_bytes(tmp_path)) == (1.5, 2**30)
    old = tmp_path / "v1"
    (old / "cpu").mkdir(parents=True)
    (old / "memory").mkdir()
    (old / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (old / "cpu/cpu.cfs_period_us").write_text("100000\n")
    (old / "memory/memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    assert (container_cpus(old), container_memory_bytes(old)) == (None, None)
    (old / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    (old / "memory/memory.limit_in_bytes").write_text("4096\n")
    assert (container_cpus(old), container_memory_bytes(old)) == (2.0, 4096)
