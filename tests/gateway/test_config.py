"""A configuration is used or every mistake in it is explained."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.gateway.conftest import config_of

from setpoint.errors import CardError
from setpoint.gateway.config import Gateway, Timeouts
from setpoint.gateway.reading import json_schema, parse_config

ROOT = Path(__file__).parents[2]


def read(config: dict[str, Any]) -> Gateway:
    return parse_config(yaml.safe_dump(config).encode(), "gateway.yaml")


def good() -> dict[str, Any]:
    return config_of(Path("state"), "http://127.0.0.1:1")


def changed(path: str, value: Any) -> dict[str, Any]:
    config = good()
    here: Any = config
    *way, last = path.split(".")
    for part in way:
        here = here[int(part)] if part.isdigit() else here.setdefault(part, {})
    here[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("models.fake.replicas.0.url", "ftp://x", "models.fake.replicas[0].url"),
        ("models.fake.replicas.0.max_in_flight", 0, "models.fake.replicas[0].max_in_flight"),
        ("models.fake.replicas.0.max_inflight", 2, "models.fake.replicas[0].max_inflight"),
        ("models.fake.replicas.0.api_key_env", "NOT_SET_ANYWHERE", "models.fake.replicas[0].api_key_env"),
        ("models.fake.routing", {"policy": "prefx"}, "models.fake.routing.policy"),
        ("models.fake.timeouts", {"gap": "soon"}, "models.fake.timeouts.gap"),
        ("models.fake.fallbacks", ["nothing"], "models.fake.fallbacks[0]"),
        ("models.fake.fallbacks", ["fake"], "models.fake.fallbacks[0]"),
        ("models.fake.aliases", ["fake"], "models.fake.aliases[0]"),
        ("models.fake.dialects", ["chatt"], "models.fake.dialects[0]"),
        ("models.mixed", {"split": {"nothing": 1}}, "models.mixed.split.nothing"),
        ("models.mixed", {}, "models.mixed.replicas"),
        ("tenants.local", {"models": ["nothing"]}, "tenants.local.models[0]"),
        ("tenants.local", {"limits": {"tokens_per_minute": "many"}}, "tenants.local.limits.tokens_per_minute"),
        ("auth.anonymous", "nobody", "auth.anonymous"),
        ("listen.host", "0.0.0.0", "auth.anonymous"),
        ("admin.host", "0.0.0.0", "admin.open"),
        ("listen.tls", {"certificate": "no", "key": "no"}, "listen.tls.certificate"),
        ("redis", {"url_env": "NOT_SET_ANYWHERE", "secret_env": "PATH"}, "redis.url_env"),
        ("redis", {"url_env": "PATH", "secret_env": "NOT_SET_ANYWHERE"}, "redis.secret_env"),
        ("redis", {"url_env": "PATH"}, "redis.secret_env"),
        ("redis", {"url_env": "PATH", "secret_env": "A_SHORT_SECRET"}, "redis.secret_env"),
        (
            "redis",
            {"url_env": "PATH", "secret_env": "PATH", "timeout": 1, "idempotency_lease": 2},
            "redis.idempotency_lease",
        ),
        ("http.max_body", "much", "http.max_body"),
        ("kind", "Workload", "kind"),
    ],
)
def test_a_mistake_is_named_with_its_field(path: str, value: Any, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SHORT_SECRET", "guessed in no time")
    with pytest.raises(CardError) as raised:
        read(changed(path, value))
    assert field in [m.field for m in raised.value.mistakes], str(raised.value)


def test_a_misspelt_field_is_told_its_name() -> None:
    with pytest.raises(CardError) as raised:
        read(changed("models.fake.replicas.0.max_in_fligth", 2))
    assert "max_in_flight (did you mean it?)" in str(raised.value)


def test_all_mistakes_are_told_at_once() -> None:
    config = changed("models.fake.timeouts", {"gap": "soon"})
    config["http"] = {"max_body": "much"}
    config["workers"] = 0
    with pytest.raises(CardError) as raised:
        read(config)
    assert len(raised.value.mistakes) == 3


def test_two_replicas_need_names_of_their_own() -> None:
    config = good()
    config["models"]["fake"]["replicas"] = [{"url": "http://127.0.0.1:1"}] * 2
    with pytest.raises(CardError, match="twice"):
        read(config)


def test_the_defaults_outlive_minutes_of_hidden_reasoning() -> None:
    limits = Timeouts()
    assert limits.first_byte >= 300
    assert limits.gap >= 300
    assert limits.total > limits.first_byte + limits.gap
    assert 0 < limits.ping <= 30  # proxies between often cut a connection that is silent for a minute


def test_units_are_those_of_people() -> None:
    config = changed("models.fake.timeouts", {"first_byte": "10m", "gap": "90s"})
    config["http"] = {"max_body": "8 MiB"}
    config["tenants"]["local"] = {"limits": {"tokens_per_day": "2M"}}
    read_ = read(config)
    assert read_.models["fake"].timeouts.first_byte == 600
    assert read_.http.max_body == 8 * 2**20
    assert read_.tenants["local"].limits.tokens_per_day == 2_000_000


# the published schema


def test_the_published_schema_is_valid_and_kept_in_the_docs() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    kept = json.loads((ROOT / "docs/gateway.schema.json").read_text(encoding="utf-8"))
    assert kept == json_schema(), "run: setpoint gateway schema > docs/gateway.schema.json"


@pytest.mark.parametrize(
    "config",
    [
        good(),
        changed("http.max_body", "64 MiB"),
        changed("models.fake.timeouts.gap", "5 min"),
        changed("tenants.local.limits", {"tokens_per_minute": 1000, "streams": 2}),
        yaml.safe_load((ROOT / "examples/gateway.yaml").read_text()),
    ],
    ids=["plain", "size", "duration", "limits", "example"],
)
def test_the_published_schema_takes_what_is_good(config: dict[str, Any]) -> None:
    read(config)
    jsonschema.validate(config, json_schema())


@pytest.mark.parametrize(
    "config",
    [
        changed("models.fake.replcas", []),
        changed("models.fake.dialects", ["chatt"]),
        changed("http.max_body", [1]),
        changed("models", {}),
        changed("kind", "Gatway"),
    ],
    ids=["a field", "a choice", "a form", "nothing to serve", "a kind"],
)
def test_the_published_schema_refuses_what_an_editor_can_know(config: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config, json_schema())
    with pytest.raises(CardError):
        read(config)
