"""A Hub on 127.0.0.1: lists files, serves ranges of them from a second host, counts what it sends."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret_of_a_test"


@dataclass
class Hub:
    """What it serves and what it saw.

    Attributes:
        files: Name to content, of one repository ``acme/tiny``.
        sizes: Listed sizes that differ from the content's.
        gated: Refuses whoever does not send ``TOKEN``.
        ranges: Whether ranges are honoured.
        listing: Body of the list of files; the true one unless given.
        sent: Bytes of bodies.
        asked: (host role, path, range, authorization) of each request.
        url: Base URL.
        storage: Base URL of the second host.
    """

    files: dict[str, bytes]
    sizes: dict[str, int] = field(default_factory=dict)
    gated: bool = False
    ranges: bool = True
    listing: bytes | None = None
    sent: int = 0
    asked: list[tuple[str, str, str, str]] = field(default_factory=list)
    url: str = ""
    storage: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def listed(self) -> bytes:
        if self.listing is not None:
            return self.listing
        files = [{"rfilename": n, "size": self.sizes.get(n, len(c))} for n, c in self.files.items()]
        return json.dumps({"sha": "c0ffee", "siblings": files}).encode()


def _handler(hub: Hub, role: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            bearer = self.headers.get("Authorization", "")
            hub.asked.append((role, path, self.headers.get("Range", ""), bearer))
            if role == "storage":
                return self.answer_file(path.rpartition("/")[2])
            if hub.gated and bearer != f"Bearer {TOKEN}":
                return self.answer(401, b"{}")
            if path.startswith("/api/models/acme/tiny/revision/"):
                return self.answer(200, hub.listed())
            if path.startswith("/acme/tiny/resolve/c0ffee/"):
                self.send_response(302)
                self.send_header("Location", f"{hub.storage}/{path.rpartition('/')[2]}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            return self.answer(404, b"{}")

        def answer_file(self, name: str) -> None:
            content, wanted = hub.files[name], self.headers.get("Range", "")
            if not (wanted and hub.ranges):
                return self.answer(200, content)
            first, last = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
            return self.answer(206, content[first : last + 1])

        def answer(self, status: int, body: bytes) -> None:
            with hub.lock:
                hub.sent += len(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)

    return Handler


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Runs it until the end of the block."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub, role)) for role in ("hub", "storage")]
    hub.url, hub.storage = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join(5)
