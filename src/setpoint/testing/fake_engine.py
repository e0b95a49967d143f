"""An engine without a model: real sockets, scripted speed and faults.

``python -m setpoint.testing.fake_engine --script '{"slots": 4}'`` serves OpenAI's chat, completions, embeddings and
models, Anthropic's messages, ``/tokenize``, ``/health`` and ``/metrics``, and prints where. A word is a token.
"""

import argparse
import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from typing import cast

import httptools
import msgspec

from setpoint.testing import fake_wire
from setpoint.testing.fake_model import FakeModel
from setpoint.testing.script import Fault, FaultKind, Script
from setpoint.testing.serve import running, serve

_REASON = "fake"


class _Tokenize(msgspec.Struct):
    content: str = ""  # llama.cpp
    prompt: str = ""  # vLLM


class FakeProtocol(asyncio.Protocol):
    """One connection to a fake engine."""

    def __init__(self, model: FakeModel) -> None:
        self._model = model
        self._script = model.script
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._key = b""
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's shape
        """The client has gone: its answer ends, its slot is free."""
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Request bytes."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.close()

    def on_url(self, url: bytes) -> None:
        """The path."""
        self._url, self._key = url, b""
        self._body.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps the key."""
        if name.lower() == b"authorization":
            self._key = value.removeprefix(b"Bearer ")
        elif name.lower() == b"x-api-key":
            self._key = value

    def on_body(self, data: bytes) -> None:
        """Request body."""
        self._body += data

    def on_message_complete(self) -> None:
        """A whole request."""
        script, path = self._script, self._url.split(b"?")[0].decode()
        if script.api_key is not None and self._key.decode() != script.api_key and path.startswith("/v1"):
            self._reply(401, fake_wire.error("invalid_api_key"))
        elif path == "/health":
            self._reply(200, b"{}")
        elif path == "/metrics" and script.metrics:
            self._reply(200, self._model.exposition().encode(), "text/plain; version=0.0.4")
        elif path == "/v1/models":
            row = {"id": script.model, "object": "model", "owned_by": "setpoint"}
            models = [row | {"max_model_len": script.context_tokens}]
            self._reply(200, msgspec.json.encode({"object": "list", "data": models}))
        elif path == "/tokenize" and script.tokenizer:
            self._tokenize()
        elif path in fake_wire.DIALECTS:
            self._task = asyncio.get_running_loop().create_task(self._generate(path))
        else:
            self._reply(404, fake_wire.error("not_found"))

    def _tokenize(self) -> None:
        try:
            asked = msgspec.json.decode(bytes(self._body), type=_Tokenize)
        except msgspec.DecodeError:
            self._reply(400, fake_wire.error("invalid_request"))
            return
        words = (asked.content or asked.prompt).split()
        self._reply(200, msgspec.json.encode({"tokens": list(range(len(words)))}))

    async def _generate(self, path: str) -> None:
        model, script = self._model, self._script
        try:
            asked = msgspec.json.decode(bytes(self._body), type=fake_wire.Asked)
        except msgspec.DecodeError:
            self._reply(400, fake_wire.error("invalid_request"))
            return
        number = model.counters.requests
        model.counters.requests += 1
        fault = next((f for f in script.faults if f.strikes(number)), None)
        if asked.model not in (script.model, None):
            self._reply(404, fake_wire.error("model_not_found"))
            return
        if fault is not None and self._fails_at_once(fault):
            return
        words = asked.words()
        wanted = asked.max_completion_tokens or asked.max_tokens or script.output_tokens
        forced = asked.ignore_eos and script.honours_ignore_eos
        said = fake_wire.scripted(asked, script)
        length = script.output_tokens if said is None else len(fake_wire.pieces(said.text))
        count = wanted if forced and said is None else min(wanted, length)
        if len(words) + script.template_tokens + count > script.context_tokens:
            self._reply(400, fake_wire.error("exceed_context_size_error"))
            return
        wire = fake_wire.DIALECTS[path](script, len(words) + script.template_tokens, count < wanted)
        if said is not None:
            wire.say(said, count)
        if fault is not None and fault.kind is FaultKind.FREEZE:
            return
        await self._answer(wire, words, count, stream=asked.stream, fault=fault)

    async def _answer(
        self, wire: fake_wire.Wire, words: list[str], count: int, *, stream: bool, fault: Fault | None
    ) -> None:
        kind = fault.kind if fault is not None else None
        late_s = fault.seconds if fault is not None and kind is FaultKind.SLOW else 0.0
        hidden = count if kind is FaultKind.REASONING else min(self._script.reasoning_tokens, count)
        stream = stream and wire.streams
        if stream:
            self._write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            self._chunk(wire.begin())
        async with contextlib.aclosing(self._model.tokens(words, count, late_s, wire.found)) as tokens:
            async for number in tokens:
                if kind is FaultKind.STALL and number == count // 2 and fault is not None:
                    await asyncio.sleep(fault.seconds)
                if number == count // 2 and self._breaks(kind, wire, stream=stream):
                    return
                if stream and kind not in (FaultKind.EMPTY, FaultKind.BAD_TOOL):
                    self._chunk(wire.token(number, hidden=number < hidden))
        if not stream:
            self._reply(200, wire.error_body() if kind is FaultKind.ERROR_EVENT else wire.whole(count, hidden, kind))
            return
        if kind is FaultKind.BAD_TOOL:
            self._chunk(wire.bad_tool())
        self._chunk(wire.end(count, hidden))
        self._write(b"0\r\n\r\n")

    def _fails_at_once(self, fault: Fault) -> bool:
        if fault.kind is FaultKind.DIE:
            os._exit(17)
        status = {FaultKind.REJECT: 429, FaultKind.BUSY: 503, FaultKind.FAIL: 500}.get(fault.kind)
        if status is not None:
            self._reply(status, fake_wire.error("overloaded"), extra="retry-after: 2\r\n" if status == 429 else "")
            return True
        if fault.kind is FaultKind.GARBAGE:
            self._reply(200, b"<html>welcome</html>", "text/html")
            return True
        return False

    def _breaks(self, kind: FaultKind | None, wire: fake_wire.Wire, *, stream: bool) -> bool:
        if kind is FaultKind.TRUNCATE and stream:
            self._write(b"0\r\n\r\n")
        elif kind is FaultKind.ERROR_EVENT and stream:
            self._chunk(wire.error_event())
            self._write(b"0\r\n\r\n")
        elif kind is FaultKind.RESET and self._transport is not None:
            self._transport.abort()
        else:
            return False
        return True

    def _reply(self, status: int, body: bytes, kind: str = "application/json", extra: str = "") -> None:
        head = f"HTTP/1.1 {status} {_REASON}\r\ncontent-type: {kind}\r\n{extra}content-length: {len(body)}\r\n\r\n"
        self._write(head.encode() + body)

    def _chunk(self, data: bytes) -> None:
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


class FakeEngine:
    """A fake engine in a process of its own.

    Attributes:
        url: Its base URL.
        pid: Its process.
    """

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid


@contextlib.contextmanager
def fake_engine(script: Script | None = None) -> Iterator[FakeEngine]:
    """Runs a fake engine until the block ends."""
    text = msgspec.json.encode(script or Script()).decode()
    with running("setpoint.testing.fake_engine", ("--script", text)) as (url, child):
        yield FakeEngine(url, child.pid)


async def _serve(script: Script, port: int) -> None:
    model = FakeModel(script)
    await serve(lambda: FakeProtocol(model), port)


def main() -> None:
    """``python -m setpoint.testing.fake_engine [--port 0] [--script JSON]``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", default="{}", help="a script as JSON; see setpoint.testing.script")
    options = parser.parse_args()
    try:
        script = msgspec.json.decode(options.script, type=Script)
    except msgspec.DecodeError as error:
        parser.error(f"--script: {error}")
    time.sleep(script.startup_s)
    import uvloop  # noqa: PLC0415 - only the process that serves needs it

    uvloop.run(_serve(script, options.port))


if __name__ == "__main__":
    main()
