"""Closed by default: what is not known is refused, always in the same words, and nothing secret is written anywhere."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.gateway.conftest import Client, Served, config_of, served, until
from tests.gateway.upstream import Upstream, upstream

from setpoint.gateway.config import Jwt, Limits
from setpoint.gateway.identity import cache_salt
from setpoint.gateway.keys import KeyStore
from setpoint.gateway.limits import DAY_USED
from setpoint.gateway.probe import run_probe
from setpoint.gateway.supervisor import Supervisor
from setpoint.gateway.tokens import JwtVerifier


def closed(state: Path, url: str, **changes: Any) -> dict[str, Any]:
    return config_of(state, url, auth={}, tenants={"acme": {}, "other": {}}, **changes)


@pytest.fixture
def gateway(state: Path, engine: Upstream) -> Iterator[Served]:
    with served(closed(state, engine.url)) as made:
        yield made


def status(gateway: Client, **fields: str) -> int:
    return gateway.chat(stream=True, fields=fields).status


def test_the_denial_matrix_passes(gateway: Served) -> None:
    _, key = gateway.keys().create("acme")
    findings = asyncio.run(run_probe(f"http://127.0.0.1:{gateway.port}", "fake", key))
    assert len(findings) > 20
    assert [f for f in findings if not f.passed] == []


def test_the_probe_sees_an_open_door(state: Path, engine: Upstream) -> None:
    with served(config_of(state, engine.url)) as gateway:
        findings = asyncio.run(run_probe(f"http://127.0.0.1:{gateway.port}", "fake", None))
    assert "no credentials" in [f.attempt for f in findings if not f.passed]


def test_a_key_opens_by_either_field(gateway: Served) -> None:
    _, key = gateway.keys().create("acme")
    assert status(gateway, authorization=f"Bearer {key}") == 200
    assert status(gateway, authorization=f"bearer {key}") == 200
    assert status(gateway, x_api_key=key) == 200
    assert status(gateway, x_api_key=key, authorization=f"Bearer {key}") == 200
    assert status(gateway, x_api_key=key, authorization="Bearer other") == 401


def test_a_revoked_or_expired_key_opens_nothing_soon(gateway: Served) -> None:
    store = gateway.keys()
    record, key = store.create("acme")
    _, short = store.create("acme", expires_in_s=0.5)
    assert status(gateway, x_api_key=key) == 200
    store.revoke(record.id)
    until(lambda: status(gateway, x_api_key=key) == 401, 3)
    until(lambda: status(gateway, x_api_key=short) == 401, 3)


def test_a_rotated_key_overlaps_and_ends(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = KeyStore(state)
    old, first = store.create("acme", models=("m",), limits=Limits(streams=2), note="agent")
    new, second = store.create("ignored", replaces=old.id, overlap_s=3600)
    assert (new.tenant, new.models, new.limits, new.note) == ("acme", ("m",), Limits(streams=2), "agent")
    made = new.created
    monkeypatch.setattr(time, "time", lambda: made + 3599)
    assert store.find(first) is not None
    monkeypatch.setattr(time, "time", lambda: made + 3600)
    assert store.find(first) is None
    assert store.find(second) is not None


def test_a_rotated_key_has_all_that_was_not_given_anew(state: Path) -> None:
    store = KeyStore(state)
    old, _ = store.create(
        "acme", models=("m",), scopes=("inference", "admin"), limits=Limits(streams=2), expires_in_s=3600
    )
    same, _ = store.create("", replaces=old.id, overlap_s=60)
    assert (same.models, same.scopes, same.limits) == (old.models, old.scopes, old.limits)
    assert same.expires == old.expires
    changes = {"models": ("n",), "scopes": ("inference",), "limits": Limits(streams=9), "expires_in_s": 7200.0}
    other, _ = store.create("", replaces=same.id, overlap_s=60, **changes)  # type: ignore[arg-type]
    assert (other.models, other.scopes, other.limits) == (("n",), ("inference",), Limits(streams=9))
    assert other.expires == other.created + 7200
    assert {key.first for key in store.list()} == {other.first} == {old.id}


def test_a_rotated_key_and_the_new_one_share_one_allowance(state: Path, engine: Upstream, tmp_path: Path) -> None:
    """While both are valid, and over a restart."""
    config = closed(state, engine.url)
    with served(config) as gateway:
        record, old = gateway.keys().create("acme", limits=Limits(requests_per_minute=3, tokens_per_day=1_000_000))
        _, new = gateway.keys().create("", replaces=record.id, overlap_s=3600)
        statuses = [status(gateway, x_api_key=key) for key in (old, new, old, new, old)]
        used = sum(line.prompt_tokens + line.completion_tokens for line in gateway.ended(5))
    assert statuses == [200, 200, 200, 429, 429]
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(config))
    supervisor = Supervisor(path, lambda _: None)
    assert supervisor._table.row(f"key:{record.id}")[DAY_USED] == used > 0
    supervisor.close()


def test_a_key_is_stored_hashed(state: Path) -> None:
    _, key = KeyStore(state).create("acme")
    assert all(key.encode() not in file.read_bytes() for file in state.rglob("*") if file.is_file())
    assert (state / "keys.db").stat().st_mode & 0o077 == 0


def test_a_key_opens_only_its_models_and_unknown_ones_read_alike(state: Path, engine: Upstream) -> None:
    config = closed(state, engine.url)
    config["models"]["secret"] = config["models"]["fake"]
    config["tenants"]["other"] = {"models": ["fake"]}
    with served(config) as gateway:
        _, key = gateway.keys().create("acme", models=("fake",))
        _, theirs = gateway.keys().create("other")
        for text in (key, theirs):
            mine = Client(gateway.port, text)
            assert mine.chat(stream=True).status == 200
            hidden, missing = mine.chat(model="secret"), mine.chat(model="nothing")
            assert hidden.status == missing.status == 404
            assert hidden.body == missing.body
            assert [m["id"] for m in mine.call("GET", "/v1/models").json()["data"]] == ["fake"]
            assert mine.call("GET", "/v1/models/secret").status == 404


def test_an_admins_key_is_not_for_inference(gateway: Served) -> None:
    _, key = gateway.keys().create("acme", scopes=("admin",))
    assert status(gateway, x_api_key=key) == 403


def test_a_tenant_that_the_configuration_forgot_is_refused(gateway: Served) -> None:
    _, key = gateway.keys().create("nobody")
    assert status(gateway, x_api_key=key) == 401


def test_salts_differ_by_tenant_and_are_framed(gateway: Served, engine: Upstream) -> None:
    salts = set()
    for tenant in ("acme", "other"):
        _, key = gateway.keys().create(tenant)
        for guess in ("", "mine"):
            assert Client(gateway.port, key).chat(stream=True, cache_salt=guess).status == 200
            salts.add(json.loads(engine.body())["cache_salt"])
    assert len(salts) == 2
    assert cache_salt(b"k" * 32, "ab") != cache_salt(b"k" * 32, "a")


def test_one_tenants_prefix_is_no_hit_for_another(gateway: Served) -> None:
    text = "word " * 2000
    for tenant in ("acme", "acme", "other"):
        _, key = gateway.keys().create(tenant)
        assert Client(gateway.port, key).chat(text, stream=True).status == 200
    predicted = [line.predicted_tokens for line in gateway.ended(3)]
    assert predicted[0] == 0
    assert predicted[1]
    assert predicted[2] == 0


def test_nothing_secret_is_written(gateway: Served, capfd: pytest.CaptureFixture[str]) -> None:
    _, key = gateway.keys().create("acme")
    mine = Client(gateway.port, key)
    assert mine.chat("the prompt's own words", stream=True).status == 200
    assert mine.chat("more of my words", fields={"authorization": "Bearer not-a-key-at-all"}).status == 401
    assert mine.call("POST", "/v1/chat/completions", b'{"model": "my words", ').status == 400
    gateway.ended(3)
    written = b"".join(f.read_bytes() for f in gateway.state.rglob("*") if f.is_file() and f.name != "secret")
    said = written + "".join(capfd.readouterr()).encode()
    for secret in (key, "not-a-key-at-all", "prompt's own words", "my words"):
        assert secret.encode() not in said


def test_a_fault_of_the_gateways_own_says_nothing_of_the_request(
    gateway: Served,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: bytes, parts: tuple[bytes, ...], *, marked: bool) -> list[int]:
        raise ValueError(parts)

    monkeypatch.setattr("setpoint.gateway.exchange.chain", broken)
    _, key = gateway.keys().create("acme")
    answer = Client(gateway.port, key).chat("my very own words")
    assert answer.status == 500
    gateway.ended(1)
    written = b"".join(f.read_bytes() for f in gateway.state.rglob("*") if f.is_file() and f.name != "secret")
    assert "ValueError" in caplog.text
    for said in (answer.body.decode(), caplog.text, written.decode("latin-1")):
        assert "own words" not in said


# tokens


@pytest.fixture
def issuer() -> Iterator[tuple[dict[str, Any], Upstream, dict[str, Any]]]:
    """Keys by name, a server of the key set, and the set that it serves."""
    keys = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in ("one", "two")}
    served_set: dict[str, Any] = {"keys": []}

    def answer(sock: socket.socket, request: bytes) -> bool:
        body = json.dumps(served_set).encode()
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        return False

    with upstream(answer) as server:
        yield keys, server, served_set


def published(key: Any, kid: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return made | {"kid": kid, "alg": "RS256", "use": "sig"}


def token(key: Any, kid: str, algorithm: str = "RS256", **claims: Any) -> str:
    now = time.time()
    whole = {"iss": "https://id", "aud": "gw", "sub": "u1", "org": "acme", "exp": now + 60} | claims
    return jwt.encode({n: v for n, v in whole.items() if v is not None}, key, algorithm, headers={"kid": kid})


def test_tokens_open_when_everything_about_them_is_right(state: Path, engine: Upstream, issuer: Any) -> None:
    keys, server, key_set = issuer
    key_set["keys"] = [published(keys["one"], "one")]
    rules = {"issuer": "https://id", "audience": "gw", "jwks": f"{server.url}/keys", "tenant_claim": "org", "leeway": 0}
    config = closed(state, engine.url)
    config["auth"] = {"jwt": rules}
    wrong = {
        "another audience": token(keys["one"], "one", aud="x"),
        "another issuer": token(keys["one"], "one", iss="x"),
        "expired": token(keys["one"], "one", exp=time.time() - 5),
        "without an end": token(keys["one"], "one", exp=None),
        "not yet valid": token(keys["one"], "one", nbf=time.time() + 60),
        "another key": token(keys["two"], "one"),
        "an unknown key": token(keys["two"], "two"),
        "signed with a public secret": jwt.encode({"sub": "x"}, "secret" * 8, "HS256", headers={"kid": "one"}),
        "unsigned": jwt.encode({"iss": "https://id", "aud": "gw", "org": "acme"}, "", "none"),
        "without a tenant": token(keys["one"], "one", org=None),
        "a tenant that is not declared": token(keys["one"], "one", org="nobody"),
        "not a token": "a.b.c",
    }
    with served(config) as gateway:
        right = token(keys["one"], "one")
        assert status(gateway, authorization=f"Bearer {right}") == 200
        assert {name: status(gateway, authorization=f"Bearer {text}") for name, text in wrong.items()} == dict.fromkeys(
            wrong, 401
        )
        line = gateway.ended(1)[0]
        assert (line.tenant, line.key) == ("acme", None)
        assert line.subject not in (None, "u1")
        assert len(server.requests) <= 2  # known keys are not fetched again, unknown ones ask seldom


def test_a_rotation_at_the_provider_needs_none_here(issuer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, server, key_set = issuer
    key_set["keys"] = [published(keys["one"], "one")]
    monkeypatch.setattr("setpoint.gateway.tokens.REFETCH_S", 0.0)
    verifier = JwtVerifier(Jwt(issuer="https://id", audience="gw", jwks=f"{server.url}/keys", tenant_claim="org"))

    async def go() -> None:
        assert await verifier.verify(token(keys["one"], "one")) == ("acme", "u1")
        key_set["keys"] = [published(keys["two"], "two")]
        assert await verifier.verify(token(keys["two"], "two")) == ("acme", "u1")
        assert await verifier.verify(token(keys["one"], "one")) is None

    asyncio.run(go())


def test_tokens_that_come_while_keys_are_fetched_wait_for_them(issuer: Any) -> None:
    """One request for the provider, however many tokens; a client that leaves takes the answer from nobody."""
    keys, server, key_set = issuer
    key_set["keys"] = [published(keys["one"], "one")]
    verifier = JwtVerifier(Jwt(issuer="https://id", audience="gw", jwks=f"{server.url}/keys", tenant_claim="org"))

    async def go() -> None:
        first, *others = [asyncio.create_task(verifier.verify(token(keys["one"], "one", jti=str(i)))) for i in range(9)]
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.gather(*others) == [("acme", "u1")] * 8

    asyncio.run(go())
    assert len(server.requests) == 1


def test_a_token_that_was_accepted_opens_nothing_after_its_end(issuer: Any) -> None:
    keys, server, key_set = issuer
    key_set["keys"] = [published(keys["one"], "one")]
    rules = {"issuer": "https://id", "audience": "gw", "jwks": f"{server.url}/keys", "tenant_claim": "org", "leeway": 0}
    verifier = JwtVerifier(Jwt.model_validate(rules))

    async def go() -> None:
        until_s = int(time.time()) + 2
        short = token(keys["one"], "one", exp=until_s)
        assert await verifier.verify(short) == ("acme", "u1")
        while await verifier.verify(short):
            assert time.time() < until_s
            await asyncio.sleep(0.01)
        assert time.time() >= until_s

    asyncio.run(go())
