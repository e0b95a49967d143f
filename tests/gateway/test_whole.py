"""The whole gateway in its processes: reload, drain, crashes, accounts, administration."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.gateway.conftest import HELLO, Client, Whole, config_of, read_all, until, whole
from tests.gateway.test_ledger import ended
from tests.gateway.upstream import chunked, upstream

from setpoint.cli import run
from setpoint.errors import UsageError
from setpoint.gateway.journal import Journal, written
from setpoint.gateway.keys import KeyStore
from setpoint.gateway.ledger import Ledger
from setpoint.gateway.supervisor import Supervisor
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script


def post(**members: object) -> bytes:
    body = json.dumps({"model": "fake", "messages": HELLO, "stream": True} | members).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def stream(gateway: Client, got: list[bytes], tokens: int) -> threading.Thread:
    """A stream that is read in the background, once its first token is there."""
    sock = gateway.raw()
    sock.sendall(post(max_tokens=tokens))
    while b"one" not in b"".join(got):
        got.append(sock.recv(65536))

    def read() -> None:
        got.append(read_all(sock))
        sock.close()

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_a_gateway_from_start_to_end(state: Path, tmp_path: Path) -> None:
    """Two workers, one allowance; reload and drain without losing a stream; the accounts are exact."""
    with fake_engine(Script(decode_s=0.02)) as engine:
        config = config_of(state, engine.url, workers=2, access_log=str(tmp_path / "access.jsonl"))
        config["tenants"]["local"] = {"limits": {"requests_per_minute": 45}}
        got: list[bytes] = []
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            with ThreadPoolExecutor(8) as pool:
                statuses = list(pool.map(lambda _: gateway.chat(stream=True).status, range(40)))
            assert statuses == [200] * 40
            asked = {
                f.name.split("-")[1] for f in (state / "run" / "journal").glob("*.jsonl") if written(f.read_bytes())
            }
            assert asked == {"0", "1"}  # both processes take connections of the one address
            until(lambda: sum(u["requests"] for u in gateway.usage()) == 40)
            reader = stream(gateway, got, 16)
            config["models"]["fake"]["aliases"] = ["other-name"]
            gateway.rewrite(config)
            until(lambda: gateway.chat(model="other-name").status == 200)
            reader.join(20)
            assert b"[DONE]" in b"".join(got)
            with ThreadPoolExecutor(8) as pool:
                statuses = list(pool.map(lambda _: gateway.chat().status, range(40)))
            assert statuses.count(200) <= 6  # what is left of 45, and what a few seconds earn
            assert statuses.count(429) == 40 - statuses.count(200)
            page = gateway.admin.call("GET", "/")
            assert page.fields["content-type"].startswith("text/html")
            assert b"r0" in page.body
            text = gateway.admin.call("GET", "/metrics").body.decode()
            assert 'setpoint_gateway_replica_up{model="fake",replica="r0"} 1.0' in text
            assert "setpoint_gateway_ttft_seconds_bucket" in text
            got.clear()
            until(lambda: gateway.chat().status == 200)
            time.sleep(1.5)  # one more request is earned
            reader = stream(gateway, got, 16)
            gateway.process.send_signal(signal.SIGTERM)
            reader.join(20)
            assert b"[DONE]" in b"".join(got)
            assert gateway.process.wait(20) == 0
        lines = [json.loads(line) for line in (tmp_path / "access.jsonl").read_text().splitlines()]
        answered = [line for line in lines if line["status"] == 200]
        assert len({line["id"] for line in lines}) == len(lines)
        shown = subprocess.run(
            [sys.executable, "-m", "setpoint", "usage", "-c", str(gateway.path), "--by", "outcome", "--json"],
            capture_output=True, check=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )  # fmt: skip
        used = {row["group"]["outcome"]: row for row in json.loads(shown.stdout)}
        tokens = sum(line["completion_tokens"] for line in answered)
        assert used["length"]["completion_tokens"] + used.get("complete", {}).get("completion_tokens", 0) == tokens


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_drain_at_once(state: Path, tmp_path: Path, number: signal.Signals) -> None:
    """The stream hears it, its tokens are accounted, and no process is left."""
    with fake_engine(Script(decode_s=0.05, output_tokens=8000)) as engine:
        config = config_of(state, engine.url, workers=2, drain=600, access_log=str(tmp_path / "access.jsonl"))
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            got: list[bytes] = []
            reader = stream(gateway, got, 8000)
            workers = gateway.status()["pids"]
            gateway.process.send_signal(number)
            if number is signal.SIGINT:  # Ctrl-C reaches the whole group
                for pid in workers:
                    os.kill(pid, signal.SIGINT)
            until(lambda: any("draining" in line for line in gateway.said))
            seen = len(got)
            assert gateway.process.poll() is None
            assert reader.is_alive()
            gateway.process.send_signal(number)
            assert gateway.process.wait(30) == 130
            reader.join(20)
            assert len(got) > seen
    body = b"".join(got)
    assert b'"error"' in body
    assert b"[DONE]" not in body
    assert body.endswith(b"0\r\n\r\n")
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    (line,) = [json.loads(text) for text in (tmp_path / "access.jsonl").read_text().splitlines()]
    assert line["outcome"] == "cancelled"
    assert line["completion_tokens"] == len(re.findall(rb'"content":"[^"]', body)) > 0


def test_a_killed_worker_is_replaced_and_accounted_for(state: Path, tmp_path: Path) -> None:
    with fake_engine(Script(decode_s=0.05, output_tokens=1000)) as engine:
        config = config_of(state, engine.url, workers=1)
        config["tenants"]["local"] = {"limits": {"streams": 1}}
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            got: list[bytes] = []
            reader = stream(gateway, got, 1000)
            (worker,) = gateway.status()["pids"]
            os.kill(worker, signal.SIGKILL)
            reader.join(10)
            assert b"[DONE]" not in b"".join(got)
            until(lambda: worker not in gateway.status()["pids"] and gateway.status()["pids"], 30)

            def served() -> bool:
                try:
                    return gateway.chat(max_tokens=2).status == 200  # the dead worker's stream is held no longer
                except OSError:
                    return False

            until(served, 30)
            lost = until(lambda: [u for u in gateway.usage() if u["group"]["outcome"] == "error"])
            assert (lost[0]["requests"], lost[0]["estimated"]) == (1, 1)
            assert lost[0]["prompt_tokens"] > 0


def test_a_bad_configuration_changes_nothing(state: Path, tmp_path: Path) -> None:
    with fake_engine(Script()) as engine:
        config = config_of(state, engine.url, workers=1)
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            for broken in (config | {"models": {}}, config | {"listen": {"port": 1}}):
                gateway.said.clear()
                gateway.path.write_text(json.dumps(broken))
                gateway.process.send_signal(signal.SIGHUP)
                until(lambda: any("stays" in line for line in gateway.said))
                assert gateway.chat().status == 200


def test_a_worker_that_dies_comes_back_by_the_configuration_in_force(state: Path, tmp_path: Path) -> None:
    """What stands in the file meanwhile, good or bad, nobody has asked for."""
    with fake_engine(Script()) as engine:
        config = config_of(state, engine.url, workers=1)
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            gateway.path.write_text("models: [half of an edi")
            (worker,) = gateway.status()["pids"]
            os.kill(worker, signal.SIGKILL)

            def served() -> bool:
                try:
                    return gateway.chat().status == 200
                except OSError:
                    return False

            until(served, 30)
            (again,) = gateway.status()["pids"]
            config["models"]["fake"]["aliases"] = ["other-name"]
            gateway.path.write_text(json.dumps(config))
            os.kill(again, signal.SIGKILL)
            until(served, 30)
            assert gateway.chat(model="other-name").status == 404
            gateway.rewrite(config)
            until(lambda: gateway.chat(model="other-name").status == 200)


def test_replicas_are_watched_by_a_token_through_the_engine(state: Path, tmp_path: Path) -> None:
    """A frozen engine accepts connections and says nothing: only a token proves life."""
    with fake_engine(Script()) as one, fake_engine(Script()) as two:
        health = {"canary": 0.3, "canary_timeout": 0.5, "failures": 2, "cooldown": 0.3}
        config = config_of(state, one.url, two.url, workers=1, model={"health": health})

        def states(gateway: Whole) -> list[str]:
            return [r["state"] for r in gateway.status()["replicas"]]

        with whole(tmp_path / "gateway.yaml", config) as gateway:
            until(lambda: states(gateway) == ["up", "up"], 20)
            os.kill(one.pid, signal.SIGSTOP)
            try:
                until(lambda: states(gateway) == ["down", "up"], 20)
                assert {gateway.chat().status for _ in range(10)} == {200}
            finally:
                os.kill(one.pid, signal.SIGCONT)
            until(lambda: states(gateway) == ["up", "up"], 20)


def test_an_engine_that_sends_tokens_is_alive_though_no_canary_gets_through(state: Path, tmp_path: Path) -> None:
    with fake_engine(Script(slots=1, decode_s=0.05, output_tokens=1000)) as engine:
        health = {"canary": 0.2, "canary_timeout": 0.3, "failures": 2, "cooldown": 0.3}
        config = config_of(state, engine.url, workers=1, model={"health": health})
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            until(lambda: gateway.status()["replicas"][0]["state"] == "up")
            got: list[bytes] = []
            reader = stream(gateway, got, 60)
            states = set()
            while reader.is_alive():
                states |= {(r["state"], r["ejected_for_s"]) for r in gateway.status()["replicas"]}
                time.sleep(0.05)
            assert b"[DONE]" in b"".join(got)
            assert states == {("up", 0.0)}


@pytest.mark.parametrize("canary", [0, 0.1], ids=["none", "unanswered"])
def test_an_engines_own_figures_are_read_whatever_its_canaries_do(state: Path, tmp_path: Path, canary: float) -> None:
    def answer(sock: socket.socket, request: bytes) -> bool:
        if request.startswith(b"GET /metrics "):
            sock.sendall(
                chunked(b'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0\n', kind="text/plain")
            )
            return False
        return sock.recv(1) != b""

    with upstream(answer) as engine:
        config = config_of(state, engine.url, workers=1, model={"health": {"canary": canary, "canary_timeout": 60}})
        config["models"]["fake"]["replicas"][0]["metrics_url"] = f"{engine.url}/metrics"
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            until(lambda: gateway.status()["replicas"][0]["kv_tokens"] == 16_000)


def test_administration_needs_an_admins_key(state: Path, tmp_path: Path) -> None:
    with fake_engine(Script()) as engine:
        config = config_of(state, engine.url, workers=1, auth={}, admin={"port": 0, "open": False})
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            assert gateway.admin.call("GET", "/healthz").status == 200
            _, user = KeyStore(state).create("local")
            _, admin = KeyStore(state).create("local", scopes=("admin",))
            for path in ("/", "/metrics", "/status", "/usage", "/keys"):
                assert gateway.admin.call("GET", path).status == 401
                assert gateway.admin.call("GET", path, authorization=f"Bearer {user}").status == 401
                assert gateway.admin.call("GET", path, authorization=f"Bearer {admin}").status == 200
            asked = {"tenant": "local", "limits": {"streams": 3}}
            made = gateway.admin.call("POST", "/keys", asked, authorization=f"Bearer {admin}").json()
            assert Client(gateway.port, made["key"]).chat().status == 200
            assert "key" not in gateway.admin.call("GET", "/keys", authorization=f"Bearer {admin}").json()[0]
            words = "words that nobody else may read"
            assert Client(gateway.port, made["key"]).chat(words, fields={"idempotency_key": words}).status == 200
            until(lambda: b"local" in gateway.admin.call("GET", "/", authorization=f"Bearer {admin}").body)
            for path in ("/", "/metrics", "/status", "/usage", "/keys"):
                shown = gateway.admin.call("GET", path, authorization=f"Bearer {admin}").body.decode()
                assert not [secret for secret in (words, user, admin, made["key"]) if secret in shown]
            gone = gateway.admin.call("DELETE", f"/keys/{made['id']}", authorization=f"Bearer {admin}")
            assert gone.status == 200
            until(lambda: Client(gateway.port, made["key"]).chat().status == 401, 5)


def test_a_day_s_use_is_remembered_over_a_restart(state: Path, tmp_path: Path) -> None:
    with fake_engine(Script(output_tokens=50)) as engine:
        config = config_of(state, engine.url, workers=1)
        config["tenants"]["local"] = {"limits": {"tokens_per_day": 100}}
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            assert gateway.chat(max_tokens=50).status == 200
            until(gateway.usage)
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            assert gateway.chat(max_tokens=50).status == 429


def test_one_state_folder_has_one_gateway(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(config_of(state, "http://127.0.0.1:1")))
    first = Supervisor(path, lambda _: None)
    with pytest.raises(UsageError, match="Another gateway"):
        Supervisor(path, lambda _: None)
    first.close()


def test_keys_by_the_command_line(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(config_of(state, "http://127.0.0.1:1")))
    config = ["-c", str(path)]
    assert run(["gateway", "check", str(path)]) == 0
    assert run(["keys", "create", "local", *config, "--limit", "tokens_per_minute=100k", "--expires", "90d"]) == 0
    key = capsys.readouterr().out.strip().splitlines()[-1]
    assert run(["keys", "list", *config, "--json"]) == 0
    listed = capsys.readouterr().out
    assert key not in listed
    (entry,) = json.loads(listed)
    assert entry["limits"] == {"tokens_per_minute": 100_000}
    assert run(["keys", "create", *config, "--replaces", entry["id"], "--overlap", "1h", "--json"]) == 0
    new = json.loads(capsys.readouterr().out)
    kept = ("tenant", "limits", "scopes", "expires")
    assert [new[name] for name in kept] == [entry[name] for name in kept]
    assert run(["keys", "revoke", entry["id"], *config]) == 0
    assert run(["keys", "revoke", entry["id"], *config]) == 2
    assert run(["keys", "create", "stranger", *config]) == 2
    assert run(["gateway", str(tmp_path / "absent.yaml")]) == 2
    assert time.time() < entry["expires"]


def test_tables_fit_a_narrow_terminal(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(config_of(state, "http://127.0.0.1:1")))
    key, _ = KeyStore(state).create("local", note="for the nightly evaluation")
    journal = Journal(state / "run" / "journal", 0)
    journal.write(ended(1, tenant="local", model="fake"))
    journal.close()
    ledger = Ledger(state)
    ledger.ingest(set())
    ledger.close()
    monkeypatch.setenv("COLUMNS", "40")
    for command, words in (
        (["keys", "list"], (key.id, "local", "inference", "for the nightly evaluation")),
        (["usage"], ("local", "fake", "completion tokens", "estimated requests")),
    ):
        assert run([*command, "-c", str(path)]) == 0
        shown = capsys.readouterr().out
        assert [word for word in words if word not in shown] == []
        assert max(map(len, shown.splitlines())) <= 40


def test_silence_is_probed_end_to_end(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fake_engine(Script()) as engine:
        with whole(tmp_path / "gateway.yaml", config_of(state, engine.url, workers=1)) as gateway:
            assert run(["gateway", "timeouts", f"http://127.0.0.1:{gateway.port}", "--silence", "2s"]) == 0
            assert "survives" in capsys.readouterr().out
            assert run(["gateway", "timeouts", engine.url, "--silence", "1s"]) == 4
            assert run(["gateway", "probe", f"http://127.0.0.1:{gateway.port}", "--model", "fake"]) == 1
            assert "FAIL" in capsys.readouterr().out  # anonymous callers are let in here


@contextlib.contextmanager
def impatient(port: int, patience_s: float) -> Iterator[int]:
    """A proxy that ends a connection whose server says nothing for so long; yields its port."""

    def carry(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            server.sendall(client.recv(65536))
            server.settimeout(patience_s)
            with contextlib.suppress(OSError):
                while data := server.recv(65536):
                    client.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=carry, args=(listener.accept()[0],)).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_where_a_silence_is_cut_is_said(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The proxy in the middle of three hops is the one that does not wait."""
    with (
        fake_engine(Script()) as engine,
        whole(tmp_path / "gateway.yaml", config_of(state, engine.url, workers=1)) as gateway,
        impatient(gateway.port, 60) as inner,
        impatient(inner, 1.0) as middle,
        impatient(middle, 60) as outer,
    ):
        urls = [f"http://127.0.0.1:{port}" for port in (outer, middle, inner, gateway.port)]
        assert run(["gateway", "timeouts", *urls, "--silence", "4s"]) == 1
        said = capsys.readouterr().out.splitlines()
        assert [("survives" in line, "was cut after 1." in line) for line in said[:4]] == [
            (False, True), (False, True), (True, False), (True, False),
        ]  # fmt: skip
        assert said[4].startswith(f"Cut between {urls[1]} and {urls[2]}, after 1.")
        assert len(said) == 5
        assert run(["gateway", "timeouts", urls[0], "--silence", "4s", "--json"]) == 1
        (hop,) = json.loads(capsys.readouterr().out)["hops"]
        assert (hop["survived"], hop["url"]) == (False, urls[0])
        assert run(["gateway", "timeouts", *urls[:2], "--silence", "4s"]) == 1
        assert f"Cut between {urls[1]} and the gateway" in capsys.readouterr().out
