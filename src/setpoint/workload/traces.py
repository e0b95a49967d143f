"""Traces of real traffic: lengths, times and block hashes; never text.

Four formats are told apart by their content: Azure's LLM trace (CSV), Mooncake's (JSONL with 512-token block hashes,
times in milliseconds), coding-agent sessions (JSON, one session a file, hashes local to it), and an access log (JSONL,
one request a line; see ``docs/card.md``). A member of a line that is not named here is dropped unread.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from setpoint.errors import UsageError
from setpoint.workload.replay import Arrival, Recorded

MOONCAKE_BLOCK = 512
SHOWN_LINES = 3


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        time_s: On the trace's own scale.
        prompt_tokens: Whole prompt, history included.
        output_tokens: Answer.
        session: What ties turns together; None when the trace does not say.
        blocks: Hashes of the prompt's blocks from its beginning on; empty without them.
        latency_s: From request to end of answer; None when unknown.
        wait_s: Think or tool time before this request; None when unknown.
        tool: Whether a tool's result is sent; None when unknown.
        answered: Whether the request got its answer.
    """

    time_s: float
    prompt_tokens: int
    output_tokens: int
    session: str | None = None
    blocks: tuple[int | str, ...] = ()
    latency_s: float | None = None
    wait_s: float | None = None
    tool: bool | None = None
    answered: bool = True


@dataclass(slots=True)
class Trace:
    """A trace as read.

    Attributes:
        source: File or folder.
        format: ``azure``, ``mooncake``, ``coding-agent`` or ``access-log``.
        requests: In order of time; of session and time for coding-agent sessions, whose clocks are unrelated.
        block_tokens: Tokens a block hash stands for; 0 without hashes.
        common_clock: Whether the times of all requests are on one scale.
        fixed_tokens: System prompt and tool definitions, where the trace states them.
        bad_lines: Number of lines that could not be read.
        bad_examples: The first few, with the reason.
    """

    source: str
    format: str
    requests: list[TraceRequest]
    block_tokens: int = 0
    common_clock: bool = True
    fixed_tokens: int = 0
    bad_lines: int = 0
    bad_examples: list[str] = field(default_factory=list)

    def refuse_line(self, number: int, reason: str) -> None:
        """Counts a line that is not a request."""
        self.bad_lines += 1
        if len(self.bad_examples) < SHOWN_LINES:
            self.bad_examples.append(f"line {number}: {reason}")

    def recorded(self) -> Recorded:
        """The trace's sends for a replay; requests with the same first block share what they share."""
        start_s = self.requests[0].time_s
        shared = _shared_with_earlier(self.requests)
        return Recorded(
            tuple(
                Arrival(r.time_s - start_s, r.prompt_tokens, max(r.output_tokens, 1), group, blocks * self.block_tokens)
                for r, (group, blocks) in zip(self.requests, shared, strict=True)
            )
        )


def read_trace(path: Path) -> Trace:
    """Reads a trace file, or a folder of coding-agent sessions.

    Raises:
        UsageError: nothing readable there, or no known format.
    """
    try:
        trace = _read_folder(path) if path.is_dir() else _read_file(path)
    except OSError as error:
        raise UsageError(
            f"The trace {str(path)!r} cannot be read: {(error.strerror or 'unreadable').lower()}."
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"The trace {str(path)!r} is not text.") from None
    if not trace.requests:
        detail = f" ({'; '.join(trace.bad_examples)})" if trace.bad_examples else ""
        raise UsageError(f"The trace {str(path)!r} holds no request{detail}.")
    if trace.common_clock:
        trace.requests.sort(key=lambda r: r.time_s)
    return trace


def _read_folder(path: Path) -> Trace:
    trace = Trace(str(path), "coding-agent", [], common_clock=False)
    fixed = []
    for file in sorted(path.glob("*.json")):
        one = _read_file(file)
        if one.format != "coding-agent":
            raise UsageError(f"{file} is not a coding-agent session; a folder may hold only those.")
        trace.requests += one.requests
        trace.block_tokens = one.block_tokens
        trace.bad_lines += one.bad_lines
        trace.bad_examples = (trace.bad_examples + [f"{file.name}: {e}" for e in one.bad_examples])[:SHOWN_LINES]
        fixed.append(one.fixed_tokens)
    trace.fixed_tokens = min(fixed, default=0)
    return trace


def _read_file(path: Path) -> Trace:
    with path.open(encoding="utf-8-sig") as file:
        head = file.readline(1 << 16)
        file.seek(0)
        if head.upper().startswith("TIMESTAMP,"):
            return _read_azure(str(path), file)
        if path.suffix == ".json" or head.strip() in ("{", "["):
            return _read_agent(str(path), file.read())
        return _read_lines(str(path), file)


def _read_azure(source: str, lines: Iterator[str]) -> Trace:
    trace = Trace(source, "azure", [])
    for number, row in enumerate(csv.DictReader(lines), 2):
        try:
            time_s = _time(row["TIMESTAMP"])
            request = TraceRequest(time_s, int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            _keep(trace, number, request)
        except (KeyError, TypeError, ValueError) as error:
            trace.refuse_line(number, _reason(error))
    return trace


def _read_lines(source: str, lines: Iterator[str]) -> Trace:
    trace: Trace | None = None
    bad: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise TypeError("not a JSON object")  # noqa: TRY301 - handled as any other bad line
            if trace is None:
                mooncake = "input_length" in entry
                trace = Trace(source, "mooncake" if mooncake else "access-log", [])
                trace.block_tokens = MOONCAKE_BLOCK if mooncake else 0
            request = _mooncake(entry) if trace.format == "mooncake" else _logged(entry, trace)
            _keep(trace, number, request)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            bad.append((number, _reason(error)))
    trace = trace or Trace(source, "access-log", [])
    for number, reason in bad:
        trace.refuse_line(number, reason)
    return trace


def _mooncake(entry: Mapping[str, Any]) -> TraceRequest:
    return TraceRequest(
        float(entry["timestamp"]) / 1e3,
        int(entry["input_length"]),
        int(entry["output_length"]),
        blocks=tuple(entry.get("hash_ids") or ()),
    )


def _logged(entry: Mapping[str, Any], trace: Trace) -> TraceRequest:
    """One line of an access log; usage may be nested as OpenAI nests it."""
    usage = entry.get("usage") if isinstance(entry.get("usage"), dict) else entry
    assert usage is not None
    prompt = _first(usage, "prompt_tokens", "input_tokens")
    output = _first(usage, "completion_tokens", "output_tokens")
    status = int(entry.get("status", 200))
    blocks = tuple(entry.get("prefix_blocks") or entry.get("hash_ids") or ())
    if blocks:
        trace.block_tokens = int(entry.get("block_tokens") or trace.block_tokens or 16)
    latency = _first(entry, "latency_s", "duration_s")
    if latency is None and entry.get("latency_ms") is not None:
        latency = float(entry["latency_ms"]) / 1e3
    session = _first(entry, "session", "session_id", "conversation_id")
    answered = 200 <= status < 300
    if answered and (prompt is None or output is None):
        raise ValueError("no prompt_tokens or completion_tokens")
    return TraceRequest(
        _time(_first(entry, "time", "timestamp", "ts")),
        int(prompt or 1),
        int(output or 0),
        session=None if session is None else str(session),
        blocks=blocks,
        latency_s=None if latency is None else float(latency),
        answered=answered,
    )


def _read_agent(source: str, text: str) -> Trace:
    trace = Trace(source, "coding-agent", [], common_clock=False)
    try:
        data = json.loads(text)
        entries = data["requests"]
        trace.block_tokens = int(data.get("block_size") or 0)
        trace.fixed_tokens = int(data.get("tool_tokens") or 0) + int(data.get("system_tokens") or 0)
        session = str(data.get("id") or source)
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError):
        raise UsageError(f"The trace {source!r} is JSON of no known format.") from None
    for number, entry in enumerate(entries, 1):
        try:
            kinds = entry.get("input_types") or []
            request = TraceRequest(
                float(entry["t"]),
                int(entry["in"]),
                int(entry["out"]),
                session=session,
                blocks=tuple(entry.get("hash_ids") or ()),
                latency_s=None if entry.get("api_time") is None else float(entry["api_time"]),
                wait_s=None if entry.get("think_time") is None else float(entry["think_time"]),
                tool="tool_result" in kinds,
            )
            _keep(trace, number, request)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            trace.refuse_line(number, _reason(error))
    return trace


def _keep(trace: Trace, number: int, request: TraceRequest) -> None:
    if request.prompt_tokens < 1 or request.output_tokens < 0 or (request.latency_s or 0) < 0:
        trace.refuse_line(number, "a length or latency below its least value")
    else:
        trace.requests.append(request)


def _first(entry: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401 - any JSON value
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _time(value: object) -> float:
    """Seconds from an ISO 8601 time (100 ns digits are cut) or from a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        raise ValueError("no time")  # noqa: TRY004 - a bad line like others
    head, dot, rest = value.strip().replace("Z", "+00:00").partition(".")
    if dot:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        rest = f".{rest[:digits][:6]:0<6}{rest[digits:]}"
    return datetime.fromisoformat(head + rest).timestamp()


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {error.args[0]}"
    if isinstance(error, json.JSONDecodeError):
        return "not JSON"
    return str(error).split(":")[0][:60] or type(error).__name__


def _shared_with_earlier(requests: list[TraceRequest]) -> list[tuple[int, int]]:
    """For each request: a group number, and how many leading blocks an earlier request had too.

    A group is a first block; a request shares with its group as much as most members do, so that a replay has
    prefixes of one length a group.
    """
    seen: set[int | str] = set()
    groups: dict[int | str, int] = {}
    out = []
    for request in requests:
        if not request.blocks:
            out.append((0, 0))
            continue
        depth = next((i for i, block in enumerate(request.blocks) if block not in seen), len(request.blocks))
        seen.update(request.blocks)
        group = groups.setdefault(request.blocks[0], len(groups))
        out.append((group, depth))
    return out
