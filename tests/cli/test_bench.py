"""``setpoint bench``, ``runs`` and ``report`` against fake engines, as a user types them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trustme
from msgspec.structs import replace
from tests.cli.command import CARD, VARIED, answer, environment, one_message, setpoint, spawned

from setpoint.testing.fake_engine import FakeEngine, fake_engine
from setpoint.testing.script import Fault, FaultKind, Script

DOUBTS = ("client was the bottleneck", "no steady state", "run is incomplete")


def check_kept(done: subprocess.CompletedProcess[str], text: str | None = None) -> None:
    """The promises were met; or this machine was too busy for a verdict, and the answer says so in as many words."""
    said = " ".join((done.stdout if text is None else text).split())
    assert done.returncode == 0 or (done.returncode == 3 and any(doubt in said for doubt in DOUBTS)), said + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "card.yaml").write_text(CARD, encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with fake_engine(VARIED) as running:
        yield running


def runs_of(folder: Path) -> list[Path]:
    return sorted((folder / ".setpoint" / "runs").iterdir())


def test_one_load_prints_verdicts_and_leaves_a_record(folder: Path, engine: FakeEngine) -> None:
    done = spawned(folder, "bench", "card.yaml", "--url", engine.url)
    check_kept(done)
    assert done.returncode or "within every promise" in " ".join(done.stdout.split())
    assert "p80 TTFT" in done.stdout
    assert len(runs_of(folder)) == 1
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_a_sweep_is_one_series_and_json_holds_the_report(folder: Path, engine: FakeEngine) -> None:
    done = setpoint(folder, "bench", "card.yaml", "--url", f"{engine.url}/v1", "--rate", "60/s,90/s", "--json")
    check_kept(done)
    body = answer(done)
    assert len(body["runs"]) == 2
    assert [s["title"] for s in body["report"]["sections"]] == [
        "Workload assumptions and what is not measured",
        "Targets and baseline",
        "Main bottleneck hypothesis",
        "Ranked experiments",
        "Acceptance criteria",
        "Vendors, models and versions",
    ]
    listed = answer(setpoint(folder, "runs", "--json"))
    assert {run["id"] for run in listed} == set(body["runs"])


def test_users_in_closed_loop(folder: Path, engine: FakeEngine) -> None:
    done = setpoint(folder, "bench", "card.yaml", "--url", engine.url, "--concurrency", "4", "--json")
    assert answer(done)["report"]["records"][0]["load"] == "4 users"


def test_a_missed_promise_is_exit_code_1(folder: Path) -> None:
    with fake_engine(Script(faults=(Fault(kind=FaultKind.FAIL, first=4, every=2),))) as failing:
        done = setpoint(folder, "bench", "card.yaml", "--url", failing.url)
    assert done.returncode == 1, done.stderr
    assert "missed" in done.stdout


def test_too_few_samples_are_exit_code_3_and_say_what_it_takes(folder: Path, engine: FakeEngine) -> None:
    done = setpoint(folder, "bench", "card.yaml", "--url", engine.url, "--rate", "4/s")
    assert done.returncode == 3, done.stderr
    said = " ".join(done.stdout.split())
    assert "too few samples" in said
    assert "more requests at this load would decide it" in said


def test_a_budget_bounds_a_run(folder: Path, engine: FakeEngine) -> None:
    begun = time.monotonic()
    done = setpoint(folder, "bench", "card.yaml", "--url", engine.url, "--duration", "10m", "--budget", "3s", "--json")
    check_kept(done)
    assert time.monotonic() - begun < 40


def test_runs_show_compare_and_report(folder: Path, engine: FakeEngine) -> None:
    for seed, rate in (("1", "60/s"), ("1", "90/s"), ("2", "60/s")):
        setpoint(folder, "bench", "card.yaml", "--url", engine.url, "--seed", seed, "--rate", rate)
    first, faster, second = (run.name for run in runs_of(folder))
    shown = setpoint(folder, "runs", "show", first)
    check_kept(shown)
    assert "p80 TTFT" in shown.stdout
    refused = setpoint(folder, "runs", "compare", first, second, "--variable", "load")
    assert refused.returncode == 2
    assert "schedule_seed" in one_message(refused)
    allowed = setpoint(folder, "runs", "compare", first, faster, "--variable", "load")
    assert "TTFT p50" in allowed.stdout, allowed.stderr
    markdown = setpoint(folder, "report", first, "-o", "r.md")
    written = (folder / "r.md").read_text(encoding="utf-8")
    check_kept(markdown, written)
    assert written.startswith("# quick on fake")
    assert answer(setpoint(folder, "report", first, second, "--json"))["schema_version"] == 1


def test_output_that_nobody_reads_is_no_fault(folder: Path, engine: FakeEngine) -> None:
    setpoint(folder, "bench", "card.yaml", "--url", engine.url)
    command = f"{sys.executable} -m setpoint report latest --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=folder, env=environment(), capture_output=True, check=False
    )
    assert done.returncode == setpoint(folder, "report", "latest", "--json").returncode, done.stderr
    assert done.stderr == b""


# what goes wrong


def test_nobody_listens(folder: Path) -> None:
    done = setpoint(folder, "bench", "card.yaml", "--url", "http://127.0.0.1:9")
    assert done.returncode == 4
    assert "127.0.0.1:9" in one_message(done)
    assert "refused" in one_message(done)


@pytest.mark.parametrize(
    ("url", "word"), [("ftp://x", "http"), ("http://", "host"), ("http://127.0.0.1:99999", "Port"), ("x y", "http")]
)
def test_an_address_that_is_none(folder: Path, url: str, word: str) -> None:
    done = setpoint(folder, "bench", "card.yaml", "--url", url)
    assert done.returncode == 2
    assert word in one_message(done)


def test_a_name_that_nobody_knows(folder: Path) -> None:
    done = setpoint(folder, "bench", "card.yaml", "--url", "http://no-such-host.invalid:8000")
    assert done.returncode == 4
    assert "no-such-host.invalid" in one_message(done)


def test_a_wrong_model_name_lists_the_right_ones(folder: Path, engine: FakeEngine) -> None:
    done = setpoint(folder, "bench", "card.yaml", "--url", engine.url, "--model", "gpt-9")
    assert done.returncode == 4
    assert "'gpt-9'" in one_message(done)
    assert "fake" in one_message(done)


def test_a_wrong_key_is_told_and_not_shown(folder: Path) -> None:
    with fake_engine(replace(VARIED, api_key="right")) as locked:
        without = setpoint(folder, "bench", "card.yaml", "--url", locked.url)
        wrong = setpoint(folder, "bench", "card.yaml", "--url", locked.url, "--api-key-env", "KEY", KEY="not-this-one")
        right = setpoint(folder, "bench", "card.yaml", "--url", locked.url, "--api-key-env", "KEY", KEY="right")
        unset = setpoint(folder, "bench", "card.yaml", "--url", locked.url, "--api-key-env", "KEY")
    assert (without.returncode, wrong.returncode, unset.returncode) == (4, 4, 2)
    check_kept(right)
    assert "key" in one_message(without)
    assert "key" in one_message(wrong)
    assert "not-this-one" not in wrong.stderr
    record = "".join(p.read_text(errors="replace") for run in runs_of(folder) for p in run.iterdir() if p.is_file())
    assert '"right"' not in record


@contextlib.contextmanager
def deaf(tls: trustme.CA | None = None, answer_bytes: bytes = b"") -> Iterator[int]:
    """Accepts connections (over TLS with a CA), reads, answers with these bytes or with nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        stop = threading.Event()
        open_ones: list[socket.socket] = []

        def accept() -> None:
            import ssl  # noqa: PLC0415 - only here

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            if tls is not None:
                tls.issue_cert("localhost").configure_cert(context)
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    peer, _ = server.accept()
                    peer.settimeout(5)
                    if tls is not None:
                        peer = context.wrap_socket(peer, server_side=True)
                    open_ones.append(peer)
                    if answer_bytes:
                        peer.recv(65536)
                        peer.sendall(answer_bytes)
                        peer.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            thread.join()
            for peer in open_ones:
                peer.close()


def test_a_server_that_accepts_and_never_answers(folder: Path) -> None:
    with deaf() as port:
        done = setpoint(folder, "bench", "card.yaml", "--url", f"http://127.0.0.1:{port}")
    assert done.returncode == 4
    assert "no whole answer within 10 s" in one_message(done)


def test_a_server_that_answers_garbage(folder: Path) -> None:
    with deaf(answer_bytes=b"SSH-2.0-OpenSSH_9.2\r\n\r\n") as port:
        done = setpoint(folder, "bench", "card.yaml", "--url", f"http://127.0.0.1:{port}")
    assert done.returncode == 4
    assert f"127.0.0.1:{port}" in one_message(done)
    with fake_engine(Script(faults=(Fault(kind=FaultKind.GARBAGE),))) as page:
        done = setpoint(folder, "bench", "card.yaml", "--url", page.url)
    assert done.returncode == 4
    assert "not" in one_message(done)


def test_a_certificate_that_nobody_trusts(folder: Path) -> None:
    with deaf(tls=trustme.CA()) as port:
        done = setpoint(folder, "bench", "card.yaml", "--url", f"https://localhost:{port}")
    assert done.returncode == 4
    assert "certificate" in one_message(done).lower()
    assert "--ca-file" in one_message(done)


def test_a_card_with_a_typo(folder: Path, engine: FakeEngine) -> None:
    (folder / "card.yaml").write_text(CARD.replace("duration", "duraton"), encoding="utf-8")
    done = setpoint(folder, "bench", "card.yaml", "--url", engine.url)
    assert done.returncode == 2
    assert "card.yaml:10: traffic.duraton" in one_message(done)
    assert "duration" in one_message(done)


def test_a_card_that_is_not_there(folder: Path) -> None:
    done = setpoint(folder, "bench", "cart.yaml", "--url", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "cart.yaml" in one_message(done)


def test_a_taken_port(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = setpoint(folder, "bench", "card.yaml", "--engine", "fake", "--port", port)
    assert done.returncode == 4
    assert f"Port {port}" in one_message(done)


def test_an_engine_that_dies_while_loading(folder: Path) -> None:
    done = setpoint(folder, "bench", "card.yaml", "--engine", "fake", "--flag", "slots=none")
    assert done.returncode == 4
    assert "slots" in one_message(done)


def test_an_engine_that_dies_in_the_middle_of_a_run(folder: Path) -> None:
    die = '[{"kind": "die", "first": 200}]'
    done = setpoint(folder, "bench", "card.yaml", "--engine", "fake", "--flag", f"faults={die}", "--duration", "20s")
    assert done.returncode in (1, 3), done.stderr
    assert "ended with exit code 17" in done.stdout + done.stderr
    shown = answer(setpoint(folder, "runs", "show", "latest", "--json"))
    assert shown["status"] == "incomplete"
    assert shown["summary"]["answered"] >= 20


def test_a_full_disk_keeps_what_was_finished(folder: Path, engine: FakeEngine) -> None:
    """A limit on the size of files stands for the full disk."""
    disk = folder / "disk"
    disk.mkdir()
    command = f"{sys.executable} -m setpoint bench card.yaml --url {engine.url} --runs disk/runs"
    script = f"ulimit -f 40; exec {command} --rate 200/s --duration 5s"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode in (3, 4), done.stderr
    assert "Traceback" not in done.stderr
    said = done.stdout + done.stderr
    assert "cannot write disk/runs/" in " ".join(said.split())
    assert answer(setpoint(folder, "runs", "show", "latest", "--runs", "disk/runs", "--json"))["status"] == "incomplete"


def test_ctrl_c_ends_at_once_keeps_the_record_and_leaves_no_process(folder: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "setpoint", "bench", "card.yaml", "--engine", "fake", "--duration", "60s"],
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    family = psutil.Process(child.pid)
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and not list(folder.glob(".setpoint/runs/*/exchanges-0*")):
        time.sleep(0.1)
    time.sleep(2.0)
    members = family.children(recursive=True)
    assert members
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    _, alive = psutil.wait_procs(members, timeout=10)
    assert not alive
    shown = answer(setpoint(folder, "runs", "show", "latest", "--json"))
    assert shown["status"] == "incomplete"
    assert shown["reason"] == "interrupted"
    assert shown["summary"]["answered"] > 10
    assert "undecided" in out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("bench", "card.yaml", "--rate", "fast", "--url", "http://127.0.0.1:9"), "--rate"),
        (("bench", "card.yaml", "--rate", "2/s", "--concurrency", "2"), "cannot both"),
        (("bench", "card.yaml", "--concurrency", "1.5"), "--concurrency"),
        (("bench", "card.yaml", "--budget", "-3m"), "--budget"),
        (("bench", "card.yaml", "--api", "chatty"), "--api"),
        (("bench", "card.yaml", "--engine", "ollama"), "ollama"),
        (("bench", "card.yaml", "--url", "http://127.0.0.1:9", "--flag", "a=b"), "--flag"),
        (("report", "no-such-run"), "no-such-run"),
        (("runs", "show", "latest"), "no run"),
        (("models", "pull", "gpt-9"), "gpt-9"),
        (("engines", "install", "triton"), "triton"),
    ],
)
def test_wrong_usage_is_one_sentence(folder: Path, arguments: tuple[str, ...], word: str) -> None:
    done = setpoint(folder, *arguments)
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) < 8


def test_a_record_folder_that_cannot_be_made(folder: Path, engine: FakeEngine) -> None:
    (folder / "file").write_text("", encoding="utf-8")
    done = setpoint(folder, "bench", "card.yaml", "--url", engine.url, "--runs", "file/runs")
    assert done.returncode == 4
    assert "file/runs" in one_message(done)
