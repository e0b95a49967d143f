"""A deployment is used or every mistake in it is explained."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fleet.conftest import deployment_of

from setpoint.errors import CardError, UsageError
from setpoint.fleet.deployment import Deployment
from setpoint.fleet.front import gateway_document
from setpoint.fleet.launches import launches_of
from setpoint.fleet.reading import front_of, load_deployment, load_front, parse_deployment
from setpoint.gateway.config import Gateway

ROOT = Path(__file__).parents[2]


def read(deployment: dict[str, Any]) -> Deployment:
    return parse_deployment(yaml.safe_dump(deployment).encode(), "deployment.yaml")


def changed(path: str, value: Any) -> dict[str, Any]:
    deployment = deployment_of(Path("state"))
    here: Any = deployment
    *way, last = path.split(".")
    for part in way:
        here = here.setdefault(part, {})
    here[last] = value
    return deployment


@pytest.mark.parametrize(
    ("path", "value", "field", "expected"),
    [
        ("models.fake.engine", "ollama", "models.fake.engine", "one of llamacpp, vllm, fake, remote"),
        ("models.fake.replica", 2, "models.fake.replica", "replicas (did you mean it?)"),
        ("models.fake.replicas", 0, "models.fake.replicas", "at least 1"),
        ("models.fake.flags", {"slotz": 2}, "models.fake.flags.slotz", "one of model, api_key, slots"),
        ("models.fake.flags", {"slots": "many"}, "models.fake.flags.slots", "a value that fits"),
        ("models.fake.flags", {"slots": [1]}, "models.fake.flags.slots", "text, a number, true or false"),
        ("models.fake.flags", 3, "models.fake.flags", "a mapping of flags"),
        ("models.fake.min_replicas", 3, "models.fake.min_replicas", "0 or nothing"),
        ("models.fake.idle_stop", "5m", "models.fake.idle_stop", "nothing unless min_replicas is 0"),
        ("models.fake.urls", ["http://h:1"], "models.fake.urls", "nothing with engine fake"),
        ("models.fake.restart_policy", {"condition": "always"}, "models.fake.restart_policy.condition", "on-failure"),
        ("models.fake.start_timeout", "soon", "models.fake.start_timeout", "a duration"),
        ("models.fake.kv_events", True, "models.fake.kv_events", "an engine that tells of its cache: vllm"),
        (
            "models.smollm2-135m-instruct",
            {"engine": "vllm", "kv_events": True, "flags": {"kv-events-config": "{}"}},
            "models.smollm2-135m-instruct.flags.kv-events-config",
            "one of the two",
        ),
        (
            "models.smollm2-135m-instruct",
            {"engine": "vllm", "kv_events": True, "flags": {"data-parallel-size": 2}},
            "models.smollm2-135m-instruct.kv_events",
            "replicas instead",
        ),
        ("models.other", {"engine": "remote"}, "models.other.urls", "the base URLs"),
        ("models.other", {"engine": "remote", "urls": ["ftp://x"]}, "models.other.urls[0]", "an HTTP address"),
        ("models.other", {"engine": "remote", "urls": ["http://h"], "replicas": 2}, "models.other.replicas", "nothing"),
        ("models.other", {"engine": "llamacpp"}, "models.other", "a path that exists"),
        ("models.other", {"model": "no.gguf"}, "models.other.model", "smollm2-135m-instruct"),
        ("models.fake.port", 8080, None, ""),
        ("models.fake.fallbacks", ["nothing"], "models.fake.fallbacks[0]", "another model"),
        ("models.fake.queue", {"loading_wait": "long"}, "models.fake.queue.loading_wait", "a duration"),
        ("auth.anonymous", "nobody", "auth.anonymous", "one of local"),
        ("listen.host", "0.0.0.0", "auth.anonymous", "127.0.0.1"),
        ("kind", "Gateway", "kind", "Deployment"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_what_was_expected(
    path: str,
    value: Any,
    field: str | None,
    expected: str,
) -> None:
    if field is None:
        read(changed(path, value))
        return
    with pytest.raises(CardError) as raised:
        read(changed(path, value))
    found = [one for one in raised.value.mistakes if one.field == field]
    assert found, str(raised.value)
    assert expected in found[0].expected
    assert found[0].line is not None


def test_ports_that_collide_are_a_mistake() -> None:
    with pytest.raises(CardError, match=r"which is also the gateway's"):
        read(changed("models.fake.port", 9000) | {"listen": {"port": 9000}})
    deployment = changed("models.fake.port", 9000)
    deployment["models"]["fake"]["replicas"] = 3
    deployment["models"]["second"] = {"engine": "fake", "port": 9002}
    with pytest.raises(CardError, match=r"9002, which is also fake's"):
        read(deployment)


def test_the_gateway_of_a_deployment_keeps_what_was_written() -> None:
    deployment = changed("models.fake.queue", {"loading_wait": "2m"})
    deployment["tenants"]["local"] = {"limits": {"tokens_per_day": "2M"}}
    deployment["http"] = {"max_body": "8 MiB"}
    deployment["models"]["fake"]["retries"] = {"budget": "20%"}
    front = front_of(read(deployment))
    assert front.models["fake"].queue.loading_wait == 120
    assert front.models["fake"].retries.budget == 0.2
    assert front.tenants["local"].limits.tokens_per_day == 2_000_000
    assert front.http.max_body == 8 * 2**20


def test_the_digest_follows_the_content() -> None:
    same = read(deployment_of(Path("state"))).digest()
    assert read(deployment_of(Path("state"))).digest() == same
    assert read(changed("models.fake.flags", {"slots": 2})).digest() != same


def test_replicas_that_are_alike_have_one_configuration_hash() -> None:
    first, second = launches_of(read(changed("models.fake.replicas", 2)))
    assert first.digest == second.digest
    assert first.plan.port != second.plan.port
    assert first.plan.api_key != second.plan.api_key
    (other,) = launches_of(read(changed("models.fake.flags", {"slots": 2})))
    assert other.digest != first.digest
    (again, _) = launches_of(read(changed("models.fake.replicas", 2)))
    assert again.digest == first.digest


def vllm_of(state: Path) -> Deployment:
    """Two replicas whose events are followed."""
    model = {"engine": "vllm", "replicas": 2, "kv_events": True}
    return read(deployment_of(state, models={"smollm2-135m-instruct": model}))


def test_each_replicas_events_have_a_socket_of_their_own() -> None:
    """The engine is told where to publish and the gateway where to listen; the replicas are alike all the same."""
    deployment = vllm_of(Path("/srv/one"))
    launches = launches_of(deployment, fetch=False)
    replicas = gateway_document(deployment, launches, {})["models"]["smollm2-135m-instruct"]["replicas"]
    for one, replica in zip(launches, replicas, strict=True):
        told = json.loads(one.plan.flags["kv-events-config"])
        events = replica["kv_events"]
        assert (told["endpoint"], told["replay_endpoint"]) == (events["endpoint"], events["replay"])
        assert all(address.startswith("ipc:///srv/one/state/run/") for address in events.values())
    assert len({address for replica in replicas for address in replica["kv_events"].values()}) == 4
    first, second = launches
    assert first.digest == second.digest
    assert launches_of(vllm_of(Path("/srv/two")), fetch=False)[0].digest == first.digest
    with pytest.raises(UsageError, match="too long a path"):
        launches_of(vllm_of(Path("/srv") / ("long" * 25)), fetch=False)


def test_models_whose_names_differ_in_a_slash_only_have_logs_of_their_own() -> None:
    deployment = deployment_of(Path("state"))
    [served] = deployment["models"].values()
    deployment["models"] = dict.fromkeys(("org/chat", "org-chat", "org:chat", "org.chat"), served)
    launches = launches_of(read(deployment), fetch=False)
    logs = [one.log for one in launches]
    assert len(set(logs)) == len(launches) >= 4
    assert {log.parent for log in logs} == {Path("state/state/logs").absolute()}


def test_a_gateways_file_is_told_from_a_deployment(tmp_path: Path) -> None:
    assert isinstance(load_front(ROOT / "examples/deployment.yaml"), Deployment)
    assert isinstance(load_front(ROOT / "examples/gateway.yaml"), Gateway)


def test_the_example_is_a_good_deployment() -> None:
    deployment = load_deployment(ROOT / "examples/deployment.yaml")
    assert deployment.models["smollm2-135m-instruct"].replicas == 2
