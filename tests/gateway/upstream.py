"""An upstream that sends exactly the bytes that a test wants, in the pieces and with the end that it wants."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from setpoint.protocol.conformance import chat, say, sse

GOOD = sse(say("Hi"), chat(finish="stop"), "[DONE]")


@dataclass
class Upstream:
    """A server of one thread a connection.

    Attributes:
        requests: Heads and bodies of the requests, as they came.
    """

    port: int
    requests: list[bytes] = field(default_factory=list)
    gone: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def body(self, number: int = -1) -> bytes:
        return self.requests[number].partition(b"\r\n\r\n")[2]

    def head(self, number: int = -1) -> str:
        return self.requests[number].partition(b"\r\n\r\n")[0].decode("latin-1")


def read_request(sock: socket.socket) -> bytes:
    """One request with a content length; empty when the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length:"))
    while len(body) < length:
        piece = sock.recv(65536)
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body


def reset(sock: socket.socket) -> None:
    """Ends a connection with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def chunked(*pieces: bytes, status: int = 200, kind: str = "text/event-stream", end: bool = True) -> bytes:
    """A response in chunks."""
    field_ = f"content-type: {kind}\r\n" if kind else ""
    head = f"HTTP/1.1 {status} x\r\n{field_}transfer-encoding: chunked\r\n\r\n".encode()
    body = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p)
    return head + body + (b"0\r\n\r\n" if end else b"")


def good(sock: socket.socket, request: bytes) -> bool:
    """Answers any request with a short stream."""
    sock.sendall(chunked(GOOD))
    return True


@contextlib.contextmanager
def upstream(answer: Callable[[socket.socket, bytes], bool]) -> Iterator[Upstream]:
    """Serves until the block ends; ``answer(socket, request)`` writes, and says whether the connection goes on."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    made = Upstream(listener.getsockname()[1])
    open_: list[socket.socket] = []

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while request := read_request(sock):
                made.requests.append(request)
                if not answer(sock, request):
                    break
        made.gone += 1
        with contextlib.suppress(OSError):
            sock.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                open_.append(sock)
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for sock in open_:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        thread.join(5)
