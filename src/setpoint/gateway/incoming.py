"""A client's request: while it is read, and once it is whole.

llhttp refuses what smuggles requests (both lengths, a length twice, bad chunk sizes, bare line feeds, folded fields);
what it tolerates and a second parser might read differently is refused here.
"""

from dataclasses import dataclass, field

from setpoint.gateway.config import Http
from setpoint.gateway.refusal import Refusal

MAX_FIELDS = 100
_ONCE = frozenset({"host", "content-length", "transfer-encoding", "authorization", "x-api-key", "content-type"})


@dataclass(slots=True)
class Request:
    """One request as it came.

    Attributes:
        method: HTTP method.
        target: As it came, query included.
        fields: Header fields, names in lower case; a field given twice is joined by commas.
        body: Transfer coding removed.
        keep_alive: Whether the client wants the connection to go on.
        http_1_0: An old client: no chunks.
        received_s: When its last byte arrived, monotonic.
        certificate: Names in the client's certificate, where it showed one that is still valid.
    """

    method: str
    target: str
    fields: dict[str, str]
    body: bytes
    keep_alive: bool
    http_1_0: bool
    received_s: float
    certificate: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


@dataclass(slots=True)
class Incoming:
    """The request that is being read.

    Attributes:
        url: Of the target so far.
        fields: Header fields so far.
        header_bytes: In them.
        raw_bytes: Received before the header's end.
        count: Header fields, those joined counted singly.
        parts: Of the body.
        body_bytes: In them.
        complete_header: The body follows.
    """

    url: bytes = b""
    fields: dict[str, str] = field(default_factory=dict)
    header_bytes: int = 0
    raw_bytes: int = 0
    count: int = 0
    parts: list[bytes] = field(default_factory=list)
    body_bytes: int = 0
    complete_header: bool = False

    @property
    def body(self) -> bytes:
        """The body so far."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    def add_field(self, name: bytes, value: bytes, http: Http) -> Refusal | None:
        """Takes a header field; trailers are dropped."""
        if self.complete_header:
            return None
        refusal = None
        self.count += 1
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key in self.fields:
            if key in _ONCE:
                refusal = Refusal(400, "http", f"The field {key} was given twice.")
            text = f"{self.fields[key]}, {text}"
        self.fields[key] = text
        self.header_bytes += len(name) + len(value) + 4
        if self.count > MAX_FIELDS or self.header_bytes > http.max_header:
            refusal = refusal or too_large_header()
        return refusal

    def fault(self, version: str, *, upgrade: bool, http: Http) -> Refusal | None:
        """What is wrong with a whole header: what it announces is checked before the body is read.

        Args:
            version: Of HTTP.
            upgrade: Whether it asks for another protocol.
            http: Bounds.
        """
        fields = self.fields
        coding = fields.get("transfer-encoding")
        if upgrade:
            return Refusal(400, "upgrade", "Protocol upgrades are not served.")
        if version not in ("1.1", "1.0"):
            return Refusal(505, "http", "Only HTTP/1.1 is served.")
        if version == "1.1" and "host" not in fields:
            return Refusal(400, "http", "The field host is missing.")
        if coding is not None and (coding.lower() != "chunked" or version == "1.0"):
            return Refusal(400, "http", "This transfer coding is not served.")
        if int(fields.get("content-length", "0")) > http.max_body:
            return too_large_body(http.max_body)
        if fields.get("expect", "100-continue").lower() != "100-continue":
            return Refusal(417, "http", "This expectation is not served.")
        return None


def too_large_header() -> Refusal:
    """Request line or fields beyond their bound."""
    return Refusal(431, "header_too_large", "The request header is too large.")


def too_large_body(limit: int) -> Refusal:
    """A body beyond its bound."""
    return Refusal(413, "body_too_large", f"The request body is larger than {limit} bytes.")
