"""The denial matrix: everything that a gateway must refuse, tried against a live address."""

import base64
import json
from dataclasses import dataclass

from setpoint.client.address import parse_base_url
from setpoint.errors import TargetError
from setpoint.gateway.wire_call import call, status_of

WRONG = "sp-0000000000-not-a-key-of-anybody"
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One attempt.

    Attributes:
        attempt: What was tried.
        expected: What should come.
        found: What came.
        passed: Whether it was refused as it should.
    """

    attempt: str
    expected: str
    found: str
    passed: bool


def _token(header: dict[str, str], claims: dict[str, object]) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in (header, claims))
    return ".".join((*parts, ""))


def _request(path: str, *fields: str, body: bytes | None = None, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: probe", "connection: close", *fields]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def run_probe(url: str, model: str, key: str | None, *, ca_file: str | None = None) -> list[Finding]:
    """Tries everything that must be refused.

    Args:
        url: Of the gateway.
        model: One that it serves.
        key: A valid key: with it what a tenant must not do is tried too.
        ca_file: PEM file of an authority to trust.

    Raises:
        TargetError: nothing answers there; silence is no refusal.
    """
    address = parse_base_url(url)
    said, end, _ = await call(address, _request("/", method="GET"), timeout_s=TIMEOUT_S, ca_file=ca_file)
    if not status_of(said):
        raise TargetError(f"{url} does not answer ({end}).", fix="Start the gateway, or check its address.")
    chat = json.dumps({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}).encode()
    path = f"{address.prefix}/v1/chat/completions"
    unsigned = _token({"alg": "none"}, {"sub": "admin", "iss": "x", "aud": "x", "exp": 4102444800})
    denied = {
        "no credentials": _request(path, body=chat),
        "a key that does not exist": _request(path, f"authorization: Bearer {WRONG}", body=chat),
        "the same in x-api-key": _request(path, f"x-api-key: {WRONG}", body=chat),
        "an empty bearer": _request(path, "authorization: Bearer ", body=chat),
        "basic authentication": _request(path, "authorization: Basic YWRtaW46YWRtaW4=", body=chat),
        "an unsigned token": _request(path, f"authorization: Bearer {unsigned}", body=chat),
        "a key in the query": _request(f"{path}?api_key={key or WRONG}", body=chat),
        "identity headers instead of a key": _request(
            path, "x-user-id: admin", "x-forwarded-user: admin", "x-setpoint-tenant: admin", body=chat
        ),
        "the list of models": _request(f"{address.prefix}/v1/models", method="GET"),
        "a path that does not exist": _request(f"{address.prefix}/v1/nothing", method="GET"),
        "metrics on the client's address": _request("/metrics", method="GET"),
        "keys on the client's address": _request("/keys", method="GET"),
        "status on the client's address": _request("/status", method="GET"),
    }
    if key is not None:
        both = (f"authorization: Bearer {key}", f"x-api-key: {WRONG}")
        denied["a valid key beside another"] = _request(path, *both, body=chat)
    findings, bodies = [], set()
    for attempt, request in denied.items():
        said, end, _ = await call(address, request, timeout_s=TIMEOUT_S, ca_file=ca_file)
        status = status_of(said)
        leaked = WRONG.encode() in said or unsigned.encode() in said
        found = f"{status or end}{', and the credential in the answer' if leaked else ''}"
        findings.append(Finding(attempt, "401", found, status == 401 and not leaked))
        bodies.add(said.partition(b"\r\n\r\n")[2])
    one = Finding(
        "all refusals read alike",
        "1 body",
        f"{len(bodies)} {'body' if len(bodies) == 1 else 'bodies'}",
        len(bodies) == 1,
    )
    findings.append(one)
    length, chunks = f"content-length: {len(chat)}", b"%x\r\n%b\r\n0\r\n\r\n" % (len(chat), chat)
    broken = {
        "content-length and transfer-encoding": _request(path, length, "transfer-encoding: chunked") + chunks,
        "two content-lengths": _request(path, length, "content-length: 1") + chat,
        "a bad chunk size": _request(path, "transfer-encoding: chunked") + b"0x5\r\n" + chunks,
        "a space before the colon": _request(path, f"content-length : {len(chat)}") + chat,
        "a folded field": _request(path, "a: b", " c", length) + chat,
        "bare line feeds": (_request(path, length) + chat).replace(b"\r\n", b"\n"),
        "a header of 1 MiB": _request(path, "a: " + "b" * 2**20, body=chat),
    }
    for attempt, request in broken.items():
        said, end, _ = await call(address, request, timeout_s=TIMEOUT_S, ca_file=ca_file)
        status = status_of(said)
        closed = end != "timeout"
        good = (status in (400, 413, 431) or (status == 0 and closed)) and closed
        findings.append(Finding(attempt, "400 or 431, closed", f"{status or 'no answer'}, {end}", good))
    if key is not None:
        findings += await _as_tenant(url, model, key, ca_file)
    return findings


async def _as_tenant(url: str, model: str, key: str, ca_file: str | None) -> list[Finding]:
    address = parse_base_url(url)
    path, bearer = f"{address.prefix}/v1/chat/completions", f"authorization: Bearer {key}"
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    attempts = {
        "the valid key alone, for this model": (
            _request(f"{address.prefix}/v1/models/{model}", bearer, method="GET"),
            200,
        ),
        "a model that does not exist": (
            _request(path, bearer, body=json.dumps(body | {"model": "no/such"}).encode()),
            404,
        ),
        "a body that is no JSON": (_request(path, bearer, body=b"{"), 400),
        "GET where POST is due": (_request(path, bearer, method="GET"), 405),
        "keys of the gateway with a tenant's key": (_request("/keys", bearer, method="GET"), 404),
    }
    findings = []
    for attempt, (request, expected) in attempts.items():
        said, end, _ = await call(address, request, timeout_s=TIMEOUT_S, ca_file=ca_file)
        status = status_of(said)
        findings.append(Finding(attempt, str(expected), str(status or end), status == expected))
    return findings
