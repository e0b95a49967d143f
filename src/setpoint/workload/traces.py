"""Traces of real traffic: lengths, times and block hashes; never text.

Four formats are told apart by their content: Azure's LLM trace (CSV), Mooncake's (JSONL with 512-token block hashes,
times in milliseconds), coding-agent sessions (JSON, one session a file, hashes local to it), and an access log (JSONL,
one request a line; see ``docs/card.md``). A member of a line that is not named here is dropped unread.
"""

import csv
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from setpoint.errors import UsageError
from setpoint.workload.replay import Arrival, Recorded

MOONCAKE_BLOCK = 512
SHOWN_LINES = 3
MOST_TOKENS = 10_000_000
MOST_NUMBER = 1e15  # no time is above it, in milliseconds either
LATEST_S = 1e11  # the year 5138: a number above it counts milliseconds or less
WAITED_FOR = (408, 429, 499)  # too slow, over a limit, the client left: the request itself was good
NOT_MODIFIED = 304  # an answer that was said again, or that a cache had

Blocks = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        time_s: On the trace's own scale.
        prompt_tokens: Whole prompt, history included; 0 where the line of an unanswered request does not say.
        output_tokens: Answer; 0 likewise.
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
    blocks: Blocks = ()
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
        no_demand: Lines of requests that no model could have answered; left out.
    """

    source: str
    format: str
    requests: list[TraceRequest]
    block_tokens: int = 0
    common_clock: bool = True
    fixed_tokens: int = 0
    bad_lines: int = 0
    bad_examples: list[str] = field(default_factory=list)
    no_demand: int = 0

    def refuse_line(self, number: int, reason: str) -> None:
        """Counts a line that is not a request."""
        self.bad_lines += 1
        if len(self.bad_examples) < SHOWN_LINES:
            self.bad_examples.append(f"line {number}: {reason}")

    def recorded(self) -> Recorded:
        """The trace's answered sends for a replay; what prompts had in common they have again.

        Raises:
            UsageError: none was answered, or the requests have no common clock.
        """
        if not self.common_clock and len({r.session for r in self.requests}) > 1:
            raise UsageError(
                f"The trace {self.source!r} cannot be replayed: its sessions have clocks of their own.",
                fix="Name the file of one session, or derive a card with `setpoint card from-trace`.",
            )
        requests = sorted((r for r in self.requests if r.answered), key=lambda r: r.time_s)
        if not requests:
            raise UsageError(f"The trace {self.source!r} holds no answered request.")
        arrivals = tuple(
            Arrival(r.time_s - requests[0].time_s, r.prompt_tokens, max(r.output_tokens, 1), blocks)
            for r, blocks in zip(requests, _shared_blocks(requests), strict=True)
        )
        return Recorded(self.source, arrivals, self.block_tokens)


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
            return _read_lines(str(path), file) if _is_line(head) else _read_agent(str(path), file.read())
        return _read_lines(str(path), file)


def _is_line(head: str) -> bool:
    """Whether a first line is a JSON object by itself and no session of a coding agent."""
    try:
        entry = json.loads(head)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and "requests" not in entry


def _read_azure(source: str, lines: Iterator[str]) -> Trace:
    trace = Trace(source, "azure", [])
    rows = csv.DictReader(lines)
    try:
        for row in rows:
            try:
                lengths = (
                    _count(row["ContextTokens"], "ContextTokens"),
                    _count(row["GeneratedTokens"], "GeneratedTokens"),
                )
                _keep(trace, rows.line_num, TraceRequest(_time(row["TIMESTAMP"]), *lengths))
            except (KeyError, ValueError) as error:
                trace.refuse_line(rows.line_num, _reason(error))
    except csv.Error as error:
        raise UsageError(f"The trace {source!r} is no CSV from line {rows.line_num} on: {error}.") from None
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
                raise ValueError("not a JSON object")  # noqa: TRY301, TRY004 - handled as any other bad line
            if trace is None:
                mooncake = "input_length" in entry
                trace = Trace(source, "mooncake" if mooncake else "access-log", [])
                trace.block_tokens = MOONCAKE_BLOCK if mooncake else 0
            if trace.format == "access-log" and not _asks_a_model(entry):
                trace.no_demand += 1
                continue
            request = _mooncake(entry) if trace.format == "mooncake" else _logged(entry, trace)
            _keep(trace, number, request)
        except (ValueError, KeyError, RecursionError) as error:
            bad.append((number, _reason(error)))
    trace = trace or Trace(source, "access-log", [])
    for number, reason in bad:
        trace.refuse_line(number, reason)
    return trace


def _mooncake(entry: Mapping[str, Any]) -> TraceRequest:
    return TraceRequest(
        _number(entry["timestamp"], "timestamp") / 1e3,
        _count(entry["input_length"], "input_length"),
        _count(entry["output_length"], "output_length"),
        blocks=_blocks(entry, "hash_ids"),
    )


def _asks_a_model(entry: Mapping[str, Any]) -> bool:
    """Whether a line of an access log is demand for a model.

    What was refused for a limit or for capacity (429, 503) is: more capacity would have answered it. What was refused
    for what it is (credentials, path, form, a model that is not there: any other 4xx) is not, nor is an answer that was
    said again, nor a line with an ``outcome``, as the gateway writes them, that names no model.
    """
    status = _count(entry.get("status", 200), "status")
    if status == NOT_MODIFIED or (400 <= status < 500 and status not in WAITED_FOR):
        return False
    return not (isinstance(entry.get("outcome"), str) and not entry.get("model"))


def _logged(entry: Mapping[str, Any], trace: Trace) -> TraceRequest:
    """One line of an access log; usage may be nested as OpenAI nests it."""
    usage = entry.get("usage") if isinstance(entry.get("usage"), dict) else entry
    assert usage is not None
    prompt = _first(usage, "prompt_tokens", "input_tokens")
    output = _first(usage, "completion_tokens", "output_tokens")
    status = _count(entry.get("status", 200), "status")
    blocks = _blocks(entry, "prefix_blocks") or _blocks(entry, "hash_ids")
    if blocks:
        _same_blocks(trace, _count(entry["block_tokens"], "block_tokens"))
    latency = _first(entry, "latency_s", "duration_s")
    latency_s = None if latency is None else _number(latency, "latency")
    if latency_s is None and entry.get("latency_ms") is not None:
        latency_s = _number(entry["latency_ms"], "latency_ms") / 1e3
    session = _first(entry, "session", "session_id", "conversation_id")
    answered = 200 <= status < 300
    if answered and (prompt is None or output is None):
        raise ValueError("no prompt_tokens or completion_tokens")
    return TraceRequest(
        _time(_first(entry, "time", "timestamp", "ts")),
        0 if prompt is None else _count(prompt, "prompt_tokens"),
        0 if output is None else _count(output, "completion_tokens"),
        session=None if session is None else str(session),
        blocks=blocks,
        latency_s=latency_s,
        answered=answered,
    )


def _same_blocks(trace: Trace, block_tokens: int) -> None:
    if block_tokens < 1 or trace.block_tokens not in (0, block_tokens):
        raise ValueError("block_tokens is not the same number above 0 on all lines")
    trace.block_tokens = block_tokens


def _read_agent(source: str, text: str) -> Trace:
    trace = Trace(source, "coding-agent", [], common_clock=False)
    try:
        data = json.loads(text)
        entries = list(data["requests"])
        trace.block_tokens = _count(data.get("block_size") or 0, "block_size")
        fixed = [_count(data.get(name) or 0, name) for name in ("tool_tokens", "system_tokens")]
        trace.fixed_tokens = sum(fixed)
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError):
        raise UsageError(
            f"The trace {source!r} is JSON of no known format.",
            fix="Known are Azure CSV, Mooncake JSONL, coding-agent sessions and access logs; see docs/card.md.",
        ) from None
    for number, entry in enumerate(entries, 1):
        try:
            if not isinstance(entry, dict):
                raise ValueError("not a JSON object")  # noqa: TRY301, TRY004 - handled as any other bad line
            request = TraceRequest(
                _number(entry["t"], "t"),
                _count(entry["in"], "in"),
                _count(entry["out"], "out"),
                session=source,
                blocks=_blocks(entry, "hash_ids"),
                latency_s=None if entry.get("api_time") is None else _number(entry["api_time"], "api_time"),
                wait_s=None if entry.get("think_time") is None else _number(entry["think_time"], "think_time"),
                tool="tool_result" in (entry.get("input_types") or ()),
            )
            _keep(trace, number, request)
        except (ValueError, TypeError, KeyError) as error:
            trace.refuse_line(number, _reason(error))
    return trace


def _keep(trace: Trace, number: int, request: TraceRequest) -> None:
    if request.answered and request.prompt_tokens < 1:
        trace.refuse_line(number, "an empty prompt")
    elif min(request.latency_s or 0, request.wait_s or 0) < 0:
        trace.refuse_line(number, "a negative time")
    else:
        trace.requests.append(request)


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST_NUMBER:
        raise ValueError(f"{name} is no number")
    return float(value)


def _count(value: object, name: str) -> int:
    """A whole number from 0, as JSON or CSV hold it."""
    number = int(value) if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number // 1:
        raise ValueError(f"{name} is no whole number")
    if not 0 <= number <= MOST_TOKENS:
        raise ValueError(f"{name} is not between 0 and {MOST_TOKENS:,}")
    return int(number)


def _blocks(entry: Mapping[str, Any], name: str) -> Blocks:
    found = entry.get(name) or []
    if not isinstance(found, list) or not all(isinstance(b, int | str) for b in found):
        raise ValueError(f"{name} is no list of hashes")
    return tuple(found)


def _first(entry: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401 - any JSON value
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _time(value: object) -> float:
    """Seconds from an ISO 8601 time (100 ns digits are cut; UTC unless it says) or from a number of seconds."""
    if isinstance(value, int | float):
        if abs(seconds := _number(value, "time")) > LATEST_S:
            raise ValueError("time is no number of seconds; milliseconds?")
        return seconds
    if not isinstance(value, str):
        raise ValueError("no time")  # noqa: TRY004 - a bad line like others
    head, dot, rest = value.strip().replace("Z", "+00:00").partition(".")
    if dot:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        rest = f".{rest[:digits][:6]:0<6}{rest[digits:]}"
    try:
        time = datetime.fromisoformat(head + rest)
    except ValueError:
        raise ValueError("no ISO 8601 time") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {error.args[0]}"
    if isinstance(error, json.JSONDecodeError):
        return "not JSON"
    return str(error) if isinstance(error, ValueError) else "unreadable"


def _shared_blocks(requests: list[TraceRequest]) -> Iterator[tuple[int, ...]]:
    """For each request: its leading blocks that another request has too, as small numbers."""
    uses = Counter(block for request in requests for block in set(request.blocks))
    numbers: dict[int | str, int] = {}
    for request in requests:
        shared = itertools.takewhile(lambda block: uses[block] > 1, request.blocks)
        yield tuple(numbers.setdefault(block, len(numbers)) for block in shared)
