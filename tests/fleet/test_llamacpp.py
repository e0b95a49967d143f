"""Two real engines behind one address, from the example's own file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.embedded import embedded_model
from tests.fleet.conftest import Serving, serving
from tests.gateway.conftest import until

pytestmark = pytest.mark.engine
EXAMPLE = Path(__file__).parents[2] / "examples/deployment.yaml"


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    embedded_model()
    folder = tmp_path_factory.mktemp("serve")
    deployment = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    deployment |= {"listen": {"port": 0}, "admin": {"port": 0}, "state": str(folder / "state"), "workers": 1}
    deployment["models"]["smollm2-135m-instruct"]["flags"] = {"n_ctx": 1024, "n_parallel": 2}
    with serving(folder, deployment) as made:
        made.ready()
        yield made


def test_both_engines_answer_behind_one_address(serve: Serving) -> None:
    told = serve.ready()
    assert [(one["engine"].split()[0], one["state"]) for one in told["replicas"]] == [("llamacpp", "up")] * 2
    texts = [f"Say {word}." for word in ("one", "two", "three", "four", "five", "six", "seven", "eight")]
    for text in texts:
        answer = serve.chat(text, model="smollm2-135m-instruct", max_tokens=2)
        assert answer.status == 200, answer.body
    assert serve.chat("Hello.", model="gpt-4o-mini", max_tokens=2).status == 200
    body = {"model": "smollm2-135m-instruct", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}
    assert serve.call("POST", "/v1/messages", body).json()["type"] == "message"


def test_cores_are_divided_and_slots_are_told(serve: Serving) -> None:
    threads = {word for one in serve.engines() for word in one.cmdline() if word.startswith("n_threads=")}
    assert len(threads) == 1
    status = serve.admin.call("GET", "/status").json()["replicas"]
    assert [one["max_in_flight"] for one in status] == [2, 2]


def test_a_killed_engine_comes_back_while_the_other_serves(serve: Serving) -> None:
    serve.engines()[0].kill()
    serve.hears("killed by signal 9")
    assert serve.chat("Hello.", model="smollm2-135m-instruct", max_tokens=2).status == 200
    until(lambda: serve.states() == ["up", "up"], 60)
    assert len(serve.engines()) == 2
