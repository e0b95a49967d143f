"""TLS towards clients: renewed certificates, and clients known by theirs."""

import asyncio
import datetime as dt
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.gateway.conftest import Whole, config_of, read_all, until, whole
from tests.gateway.upstream import Upstream, chunked, upstream

from setpoint.cli import run
from setpoint.errors import CardError
from setpoint.gateway.certificates import Certificates, client_certificate
from setpoint.gateway.config import Tls
from setpoint.gateway.keys import KeyStore
from setpoint.gateway.reading import load_config
from setpoint.protocol.conformance import chat, say, sse

BODY = b'{"model":"fake","stream":true,"messages":[]}'


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    authority = trustme.CA()
    files = tmp_path / "cert.pem", tmp_path / "key.pem"

    def issue(name: str) -> None:
        made = authority.issue_cert(name)
        files[0].write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        files[1].write_bytes(made.private_key_pem.bytes())

    issue("one.test")
    certificates = Certificates(Tls(certificate=str(files[0]), key=str(files[1])))

    async def names() -> str:
        server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=certificates.context)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        port = server.sockets[0].getsockname()[1]
        for name in ("one.test", "two.test"):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
            except ssl.SSLCertVerificationError:
                continue
            writer.close()
            server.close()
            return name
        raise AssertionError

    assert asyncio.run(names()) == "one.test"
    issue("two.test")
    certificates.renew()
    assert asyncio.run(names()) == "two.test"


class Files:
    """An authority, and a server's certificate of it."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.tls = {n: str(folder / f"{n}.pem") for n in ("certificate", "key", "client_ca")}
        self.issue("gateway.test")
        self.authority.cert_pem.write_to_path(self.tls["client_ca"])

    def issue(self, name: str) -> None:
        made = self.authority.issue_cert(name)
        Path(self.tls["certificate"]).write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(self.tls["key"])

    def context(self, client: trustme.LeafCert | None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if client is not None:
            client.configure_cert(context)
        return context

    def ask(self, port: int, client: trustme.LeafCert | None, *fields: str, name: str = "gateway.test") -> int | None:
        """Status of a request; None when the connection was refused."""
        head = ["POST /v1/chat/completions HTTP/1.1", "host: x", "connection: close", f"content-length: {len(BODY)}"]
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
                with self.context(client).wrap_socket(plain, server_hostname=name) as sock:
                    sock.sendall("\r\n".join([*head, *fields, "", ""]).encode() + BODY)
                    said = read_all(sock)
        except ssl.SSLCertVerificationError:
            raise  # of the server's: no refusal of ours
        except (ssl.SSLError, ConnectionError):
            return None  # told in the handshake, or, in TLS 1.3, by its end
        return int(said.split()[1]) if said else None


def closed(state: Path, url: str, tls: dict[str, str], **auth: Any) -> dict[str, Any]:
    return config_of(
        state, url, workers=1, listen={"port": 0, "tls": tls}, auth=auth, tenants={"acme": {}, "other": {}}
    )


def test_only_clients_with_a_good_certificate_are_served_where_it_is_required(
    state: Path, tmp_path: Path, engine: Upstream
) -> None:
    files = Files(tmp_path)
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    expired = files.authority.issue_cert("svc.acme.test", not_after=past)
    stranger = trustme.CA().issue_cert("svc.acme.test")
    names = {"svc.acme.test": "acme", "team@other.test": "other", "spiffe://acme/agent": "acme"}
    with whole(tmp_path / "gateway.yaml", closed(state, engine.url, files.tls, certificates=names)) as gateway:
        port = gateway.port
        assert files.ask(port, files.authority.issue_cert("svc.acme.test")) == 200
        assert files.ask(port, files.authority.issue_cert("team@other.test")) == 200
        assert files.ask(port, files.authority.issue_cert("unknown.test")) == 401
        assert files.ask(port, files.authority.issue_cert("svc.acme.test", "team@other.test")) == 401
        assert files.ask(port, None) is None
        assert files.ask(port, expired) is None
        assert files.ask(port, stranger) is None
        assert len(engine.requests) == 2
        used = until(lambda: rows if len(rows := gateway.usage("tenant")) == 3 else None)
        assert {row["group"]["tenant"]: row["requests"] for row in used} == {"acme": 1, "other": 1, "": 2}


def test_who_opens_a_connection_and_shakes_no_hands_is_ended(state: Path, tmp_path: Path, engine: Upstream) -> None:
    config = closed(state, engine.url, Files(tmp_path).tls) | {"http": {"header_timeout": 0.5}}
    with whole(tmp_path / "gateway.yaml", config) as gateway, gateway.raw() as sock:
        sock.settimeout(20)
        assert read_all(sock) == b""


def test_a_certificate_and_a_key_must_be_of_one_tenant(state: Path, tmp_path: Path, engine: Upstream) -> None:
    files = Files(tmp_path)
    config = closed(
        state, engine.url, files.tls | {"client_certificates": "optional"}, certificates={"svc.acme.test": "acme"}
    )
    acme, unknown = files.authority.issue_cert("svc.acme.test"), files.authority.issue_cert("unknown.test")
    with whole(tmp_path / "gateway.yaml", config) as gateway:
        mine, theirs = (f"x-api-key: {KeyStore(state).create(tenant)[1]}" for tenant in ("acme", "other"))
        assert files.ask(gateway.port, None) == 401
        assert files.ask(gateway.port, None, mine) == 200
        assert files.ask(gateway.port, acme) == 200
        assert files.ask(gateway.port, acme, mine) == 200
        assert files.ask(gateway.port, acme, theirs) == 401
        assert files.ask(gateway.port, acme, "x-api-key: wrong") == 401
        assert files.ask(gateway.port, acme, "authorization: Basic x") == 401
        assert files.ask(gateway.port, unknown, theirs) == 200  # it says nothing of who calls
        assert files.ask(gateway.port, trustme.CA().issue_cert("svc.acme.test"), mine) is None


def test_certificates_and_names_follow_a_reload_without_a_lost_stream(state: Path, tmp_path: Path) -> None:
    files = Files(tmp_path)

    def slow(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(sse(say("one")), end=False))
        go.recv(1)
        rest = sse(chat(finish="stop"), "[DONE]")
        sock.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest))
        return True

    go, gone = socket.socketpair()
    with go, gone, upstream(slow) as engine:
        config = closed(state, engine.url, files.tls, certificates={"svc.acme.test": "acme"})
        acme, later = files.authority.issue_cert("svc.acme.test"), files.authority.issue_cert("later.test")
        with whole(tmp_path / "gateway.yaml", config) as gateway:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as plain:
                with files.context(acme).wrap_socket(plain, server_hostname="gateway.test") as sock:
                    sock.sendall(head % len(BODY) + BODY)
                    got = sock.recv(65536)
                    files.issue("renewed.test")
                    config["auth"]["certificates"]["later.test"] = "other"
                    gateway.rewrite(config)
                    gone.sendall(b"..")
                    until(lambda: served_as(files, gateway, later, "renewed.test"))
                    got += read_all(sock)
            assert b"[DONE]" in got


def served_as(files: Files, gateway: Whole, client: trustme.LeafCert, name: str) -> bool:
    """Whether the gateway shows the renewed certificate, and knows the client's."""
    try:
        return files.ask(gateway.port, client, name=name) == 200
    except ssl.SSLCertVerificationError:
        return False


def test_a_connection_does_not_outlive_its_clients_certificate() -> None:
    peer = {"notAfter": "Jan  1 00:00:00 2020 GMT", "subjectAltName": (("DNS", "svc.acme.test"), ("IP Address", "::1"))}
    read = client_certificate(peer)
    assert read is not None
    assert read.names == ("svc.acme.test",)
    assert read.valid_names() == ()
    assert client_certificate({}) is None
    bare = client_certificate({"notAfter": "Jan  1 00:00:00 2099 GMT", "subject": ((("commonName", "svc"),),)})
    assert bare is not None
    assert bare.valid_names() == ("svc",)


def test_names_of_certificates_need_an_authority_and_a_tenant(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(config_of(state, "http://127.0.0.1:1", auth={"certificates": {"a.test": "nobody"}})))
    with pytest.raises(CardError) as error:
        load_config(path)
    text = str(error.value)
    assert "listen.tls.client_ca" in text
    assert "nobody" in text


def test_probes_tell_no_key_to_a_server_that_is_not_trusted(
    state: Path, tmp_path: Path, engine: Upstream, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path)
    files.issue("127.0.0.1")
    tls = {name: files.tls[name] for name in ("certificate", "key")}
    with whole(tmp_path / "gateway.yaml", closed(state, engine.url, tls)) as gateway:
        monkeypatch.setenv("KEY", KeyStore(state).create("acme")[1])
        url, key = f"https://127.0.0.1:{gateway.port}", ["--api-key-env", "KEY"]
        for command in (["probe", url, "--model", "fake", *key], ["timeouts", url, "--silence", "1s", *key]):
            assert run(["gateway", *command]) == 4
            assert "certificate" in capsys.readouterr().err
            assert run(["gateway", *command, "--ca-file", files.tls["client_ca"]]) == 0
        capsys.readouterr()
