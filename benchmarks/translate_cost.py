"""CPU microseconds a translated chunk: a stream of one-token chunks, each fed as it would arrive, on one core.

    messages   an engine's chat stream for an Anthropic client
    chat       an engine's Anthropic stream for a chat client
    responses  an engine's chat stream for a Responses client
    read       the verdict alone on the same chat stream, for comparison
    calls      arguments of a tool call, chat for an Anthropic client

Also milliseconds for a request with a 200 KB history.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from setpoint.clock import utc_now
from setpoint.protocol import translate
from setpoint.protocol.answer import AnswerReader
from setpoint.protocol.conformance import (
    DONE,
    MESSAGE_STOP,
    ROLE,
    START,
    STOP,
    chat,
    ended,
    events,
    say,
    sse,
    text_block,
    tool,
)
from setpoint.records.target import Dialect

TOKENS, REPEATS = 2000, 15
MORE = {"id": "chatcmpl-0123456789abcdef", "created": 1796111314, "model": "model"}


def pieces(body: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in body.split(b"\n\n")[:-1]]


CHAT = pieces(sse(*(c | MORE for c in (ROLE, *[say(" token")] * TOKENS, STOP)), DONE))
CALL = pieces(
    sse(
        *(c | MORE for c in (tool(0, "c", "f", "{"), *[tool(0, arguments=' "a"')] * TOKENS, chat(finish="tool_calls"))),
        DONE,
    )
)
ANTHROPIC = pieces(events(START, *text_block(*[" token"] * TOKENS), ended("end_turn"), MESSAGE_STOP))
TURNS = [{"role": role, "content": [{"type": "text", "text": "word " * 400}]} for role in ("user", "assistant") * 50]
HISTORY = json.dumps({"model": "m", "max_tokens": 9, "messages": TURNS}).encode()


def stream(source: Dialect, target: Dialect, chunks: list[bytes]) -> Callable[[], object]:
    def run() -> None:
        translator = translate.StreamTranslator(source, target)
        for chunk in chunks:
            translator.feed(chunk)
        translator.end()

    return run


def read() -> None:
    reader = AnswerReader(Dialect.CHAT)
    reader.response(200, "text/event-stream")
    for chunk in CHAT:
        reader.feed(chunk, 0.0)
    reader.end(0.0)


def best(run: Callable[[], object], count: int) -> dict[str, float]:
    """Median, smallest and largest microseconds of CPU for one of ``count``."""
    took = []
    for _ in range(REPEATS):
        begin = time.process_time()
        run()
        took.append((time.process_time() - begin) / count * 1e6)
    took.sort()
    return {"median": took[len(took) // 2], "min": took[0], "max": took[-1]}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "translate_cost.json")
    out: Path = options.parse_args().out
    rows = {
        "read": best(read, len(CHAT)),
        "messages": best(stream(Dialect.CHAT, Dialect.MESSAGES, CHAT), len(CHAT)),
        "calls": best(stream(Dialect.CHAT, Dialect.MESSAGES, CALL), len(CALL)),
        "responses": best(stream(Dialect.CHAT, Dialect.RESPONSES, CHAT), len(CHAT)),
        "chat": best(stream(Dialect.MESSAGES, Dialect.CHAT, ANTHROPIC), len(ANTHROPIC)),
        "request_200kb": best(lambda: translate.request(HISTORY, Dialect.MESSAGES, Dialect.CHAT), 1),
    }
    for name, row in rows.items():
        print(f"{name:14} {row['median']:8.2f} us ({row['min']:.2f}-{row['max']:.2f})")
    facts = {
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "date": utc_now().isoformat(timespec="seconds"),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"machine": facts, "microseconds": rows}, indent=2) + "\n", encoding="utf-8")


main()
