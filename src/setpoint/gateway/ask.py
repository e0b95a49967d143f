"""A request as the gateway understands it: the few members it must know, all others byte for byte as they came."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from setpoint.errors import TranslationError
from setpoint.gateway.refusal import Refusal
from setpoint.protocol import translate
from setpoint.protocol.requests import PATHS
from setpoint.records.target import Dialect

BY_PATH = {path: dialect for dialect, path in PATHS.items()}
MAX_CHOICES = 128

# What a caller must not decide: where a request or its cache goes, whose it is, and what else the engine runs for it.
WITHHELD = frozenset(
    {
        "api_base", "api_key", "base_url", "custom_llm_provider", "extra_headers",  # proxies obey these
        "kv_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room",  # caches fetched from a named host
        "priority", "data_parallel_rank", "routed_dp_rank", "cache_salt", "rid", "request_id", "id_slot", "slot_id",
        "n_predict",  # llama.cpp obeys it above the limit by which tokens are reserved
    }
)  # fmt: skip
_LIMITS = {
    Dialect.CHAT: ("max_completion_tokens", "max_tokens"),
    Dialect.COMPLETIONS: ("max_tokens",),
    Dialect.MESSAGES: ("max_tokens",),
    Dialect.RESPONSES: ("max_output_tokens",),
    Dialect.EMBEDDINGS: (),
}
_PROMPT = {
    Dialect.CHAT: ("tools", "messages"),
    Dialect.COMPLETIONS: ("prompt",),
    Dialect.MESSAGES: ("tools", "system", "messages"),
    Dialect.RESPONSES: ("tools", "instructions", "input"),
    Dialect.EMBEDDINGS: ("input",),
}
# Engines that read names without regard to case (Go's JSON) would take these for the ones that are checked here.
_FOLDED = frozenset(
    {"model", "stream", "stream_options", "n", "best_of", *WITHHELD}.union(*_LIMITS.values(), *_PROMPT.values())
)
_PLAIN: dict[bytes, object] = {b"true": True, b"false": False, b"null": None}
_MAX_DIGITS = 18  # longer ones are left to the decoder
ZERO = ord("0")
_LIST = ord("[")
_BRACKETS = b'["'
T = TypeVar("T")
_LISTS = (Dialect.CHAT, Dialect.MESSAGES)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_DECODE: dict[type, Callable[[msgspec.Raw], object]] = {
    str: msgspec.json.Decoder(str | None).decode,
    int: msgspec.json.Decoder(int | None).decode,
    bool: msgspec.json.Decoder(bool | None).decode,
}
_PROMPTS = msgspec.json.Decoder(list[msgspec.Raw])
_OPTIONS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_USAGE = msgspec.Raw(b'{"include_usage":true}')


@dataclass(slots=True)
class Ask:
    """One request.

    Attributes:
        dialect: Asked in.
        model: Name that the client gave.
        stream: Whether a stream is wanted.
        wants_usage: Whether the client itself asked for the usage chunk of an OpenAI stream.
        max_output: Longest answer asked for, all choices together; None leaves it open.
        parts: The prompt's JSON in the order in which engines render it, without the last bracket.
        members: All members.
        limit: Longest answer asked for, of each choice; None leaves it open.
    """

    dialect: Dialect
    model: str
    stream: bool
    wants_usage: bool
    max_output: int | None
    parts: tuple[bytes, ...]
    members: dict[str, msgspec.Raw]
    limit: int | None = None

    @property
    def prompt_bytes(self) -> int:
        """Size of the prompt's JSON."""
        return sum(map(len, self.parts))

    def body(self, engine: Dialect, *, model: str, salt: str | None, max_output: int | None) -> bytes:
        """The request for an engine.

        Args:
            engine: The engine's dialect.
            model: Name at the engine.
            salt: Cache salt; None sends none.
            max_output: Limit to set where the client set none.

        Raises:
            Refusal: 400, the engine's dialect has no word for a member.
        """
        members = self.members.copy()
        if not WITHHELD.isdisjoint(members):
            for name in WITHHELD & members.keys():
                del members[name]
        limits = _LIMITS[self.dialect]
        if len(limits) > 1 and self.limit is not None and limits[0] in members and limits[1] in members:
            members[limits[0]] = members[limits[1]] = _raw(self.limit)  # engines differ in which of the two they obey
        if max_output is not None and self.max_output is None and limits:
            members[limits[-1]] = _raw(max_output)
        if engine is not self.dialect:
            try:
                members = _members(translate.request(msgspec.json.encode(members), self.dialect, engine))
            except TranslationError as error:
                raise Refusal(400, "invalid_request", error.message) from None
        members["model"] = _name(model)
        if salt is not None:
            members["cache_salt"] = _name(salt)
        if self.stream and engine in (Dialect.CHAT, Dialect.COMPLETIONS) and not self.wants_usage:
            options = _OPTIONS.decode(members.get("stream_options", b"null")) or {}
            members["stream_options"] = _raw(options | {"include_usage": True}) if options else _USAGE
        return msgspec.json.encode(members)


def read_ask(body: bytes, dialect: Dialect) -> Ask:
    """Reads a request.

    Raises:
        Refusal: 400, naming the member.
    """
    try:
        members = _members(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refusal(400, "invalid_json", "The body is not a JSON object.") from None
    written = "".join(members)
    if not (written.isascii() and written.islower()):
        _refuse_folded(members)
    model = _member(members, "model", str)
    if not model:
        raise _bad("model", "a model's name")
    names, limits = _PROMPT[dialect], _LIMITS[dialect]
    if names[-1] not in members:
        raise _bad(names[-1], "the prompt")
    if dialect in _LISTS and memoryview(members[names[-1]])[0] != _LIST:
        raise _bad("messages", "a list")
    outputs = [n for name in limits if name in members and (n := _member(members, name, int)) is not None]
    if outputs and min(outputs) < 0:
        raise _bad("max_tokens", "a number from 0")
    choices = 1
    if "n" in members:
        choices = _member(members, "n", int) or 1
        if not 1 <= choices <= MAX_CHOICES:
            raise _bad("n", f"a number from 1 to {MAX_CHOICES}")
    if dialect is Dialect.COMPLETIONS:
        choices = max(choices, _member(members, "best_of", int) or 1) * _prompts(members["prompt"])
    options: dict[str, msgspec.Raw] = {}
    if "stream_options" in members:
        try:
            options = _OPTIONS.decode(members["stream_options"]) or {}
        except msgspec.DecodeError:
            raise _bad("stream_options", "an object") from None
    limit = min(outputs) if outputs else None
    return Ask(
        dialect,
        model,
        dialect is not Dialect.EMBEDDINGS and bool(_member(members, "stream", bool)),
        bool(options) and bool(_member(options, "include_usage", bool)),
        None if limit is None else limit * choices,
        tuple([_opened(members[name]) for name in names if name in members]),
        members,
        limit,
    )


def _refuse_folded(members: dict[str, msgspec.Raw]) -> None:
    for name in members:
        if name.casefold() in _FOLDED and name not in _FOLDED:
            raise Refusal(400, "invalid_request", f"A member must be written {name.casefold()!r}.")


def _prompts(raw: msgspec.Raw) -> int:
    """How many prompts a member is: a list of texts, or of lists of token ids, is answered one by one."""
    if memoryview(raw)[0] != _LIST or bytes(memoryview(raw)[1:]).lstrip()[:1] not in (b'"', b"["):
        return 1
    return len(_PROMPTS.decode(raw))


def _opened(raw: msgspec.Raw) -> bytes:
    """A list or text without its end, so that a longer one begins with the same bytes."""
    text = memoryview(raw)
    return bytes(text[1:-1] if text[0] in _BRACKETS else text)


def _member(members: dict[str, msgspec.Raw], name: str, kind: type[T]) -> T | None:
    raw = members.get(name)
    if raw is None:
        return None
    text = bytes(raw)
    if kind is bool and text in _PLAIN:
        return cast("T | None", _PLAIN[text])
    if kind is int and text.isdigit() and text[0] != ZERO and len(text) <= _MAX_DIGITS:
        return cast("T", int(text))
    try:
        return cast("T | None", _DECODE[kind](raw))
    except msgspec.DecodeError:
        word = {str: "text", int: "a whole number", bool: "true or false"}.get(kind, "a value")
        raise _bad(name, word) from None


def _bad(name: str, expected: str) -> Refusal:
    return Refusal(400, "invalid_request", f"The member {name!r} must be {expected}.")


@lru_cache(maxsize=1024)
def _name(text: str) -> msgspec.Raw:
    return _raw(text)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
