"""A file of accelerators, the packaged one or a user's own, into ``Accelerator`` values or one clear message.

YAML: ``sources`` (key to citation) and ``accelerators`` (name to fields). A field is a number, which takes the
accelerator's own ``source`` and ``origin``, or ``{value, source, origin}``. CSV: one accelerator a row, the same field
names as columns, ``source`` and ``origin`` once a row. Units are in the names of the fields.
"""

import csv
import io
import math
from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any, cast

import yaml

from setpoint.errors import UsageError
from setpoint.hardware.accelerator import Accelerator, Figure, Links, Origin, Precision, Price

MAX_BYTES = 2**20
MAX_DEPTH = 12
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C takes a tenth of the time; both make plain values only."""
GB, GIB, TERA = 1e9, 2.0**30, 1e12

_REQUIRED = {
    "memory_gb": GB,
    "usable_gib": GIB,
    "bandwidth_gb_per_s": GB,
    "bus_gb_per_s": GB,
    "network_gb_per_s": GB,
    "link_gb_per_s": GB,
    "link_domain": 1.0,
    "server": 1.0,
}
_FLOPS: Mapping[str, Precision] = {
    "fp16_tflops": "fp16",
    "bf16_tflops": "bf16",
    "fp8_tflops": "fp8",
    "fp4_tflops": "fp4",
    "int8_tops": "int8",
}
_OPENING = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
_TEXT = ("vendor", "architecture", "link")
_OTHER = {"power_w", "aliases", "prices", "source", "origin", "usd_per_hour", "price_date"}
_KNOWN = {*_REQUIRED, *_FLOPS, *_TEXT, *_OTHER}
_ORIGINS = ("datasheet", "logged", "assumed", "measured")


def read_accelerators(content: bytes, file: str, *, format_: str) -> Mapping[str, Accelerator]:
    """Reads a file; ``file`` is its name in messages, ``format_`` is ``yaml`` or ``csv``.

    Raises:
        UsageError: names the accelerator and the field.
    """
    if len(content) > MAX_BYTES:
        raise UsageError(f"{file} is larger than 1 MiB; a file of accelerators is not.")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text.") from None
    raw = _from_csv(text, file) if format_ == "csv" else _from_yaml(text, file)
    sources = raw.get("sources") or {}
    entries = raw.get("accelerators")
    if not isinstance(entries, dict) or not entries:
        raise UsageError(f"{file} has no `accelerators`.", fix="See docs/hardware.md for the shape of the file.")
    if not isinstance(sources, dict):
        raise UsageError(f"{file}: `sources` must map a key to a citation.")
    return MappingProxyType({str(n): _Row(str(n), e, sources, file).accelerator() for n, e in entries.items()})


def _from_yaml(text: str, file: str) -> dict[str, Any]:
    try:
        _check_tokens(text, file)
        raw = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader either way
    except yaml.YAMLError as error:
        if "maximum nesting depth" in str(error):  # libyaml's own limit, met while it looks ahead
            raise _too_deep(file) from None
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" near line {mark.line + 1}"
        raise UsageError(f"{file} is not valid YAML{where}.") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{file} must be a mapping with `accelerators`.")
    return raw


def _too_deep(file: str) -> UsageError:
    return UsageError(f"{file} is nested more than {MAX_DEPTH} deep; a file of accelerators is not.")


def _check_tokens(text: str, file: str) -> None:
    """Nesting slows the parser down by its square, and an alias lets a small file grow without bound."""
    depth = 0
    for token in yaml.scan(text, Loader=_LOADER):
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > MAX_DEPTH:
            raise _too_deep(file)
        if isinstance(token, yaml.AliasToken):
            raise UsageError(f"{file} uses YAML aliases (*name); write the values out.")


def _from_csv(text: str, file: str) -> dict[str, Any]:
    entries: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        name = (row.pop("name", None) or "").strip()
        if not name or name in entries or None in row:
            wrong = "has no name" if not name else "has more cells than columns" if None in row else "repeats a name"
            raise UsageError(f"{file}: line {number} {wrong}.")
        entries[name] = {k: _cell(v) for k, v in row.items() if v is not None and v.strip()}
    return {"accelerators": entries}


def _cell(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text.strip()


class _Row:
    """One accelerator being read."""

    def __init__(self, name: str, entry: object, sources: dict[str, Any], file: str) -> None:
        self.name, self.file, self.sources = name, file, sources
        if not isinstance(entry, dict):
            raise self.wrong("the entry", entry, "fields")
        self.entry: dict[str, Any] = entry
        for field in entry:
            if field not in _KNOWN:
                raise self.wrong("a field", field, f"one of {', '.join(sorted(_KNOWN))}")

    def wrong(self, field: str, found: object, expected: str) -> UsageError:
        return UsageError(f"{self.file}: {self.name}: {field}: found {str(found)[:60]!r}, expected {expected}.")

    def accelerator(self) -> Accelerator:
        need = {field: self.figure(field, factor) for field, factor in _REQUIRED.items()}
        flops = {p: self.figure(field, TERA) for field, p in _FLOPS.items() if field in self.entry}
        if not {"bf16", "fp16"} & set(flops):
            raise self.wrong("bf16_tflops", "nothing", "a rate in bf16_tflops or fp16_tflops")
        vendor, architecture, link = (self.text(field) for field in _TEXT)
        # Vendors state both directions of a link together; a transfer uses one.
        one_way = {k: _halved(need[k]) for k in ("link_gb_per_s", "bus_gb_per_s", "network_gb_per_s")}
        if need["usable_gib"].value > need["memory_gb"].value * 1.08:
            raise self.wrong("usable_gib", self.entry["usable_gib"], "no more than the nominal memory_gb")
        return Accelerator(
            name=self.name,
            vendor=vendor,
            architecture=architecture,
            aliases=self.aliases(),
            memory_bytes=need["memory_gb"],
            usable_bytes=need["usable_gib"],
            bandwidth_bytes_per_s=need["bandwidth_gb_per_s"],
            flops=MappingProxyType(flops),
            links=Links(
                name=link,
                bytes_per_s=one_way["link_gb_per_s"],
                domain=need["link_domain"],
                server=need["server"],
                bus_bytes_per_s=one_way["bus_gb_per_s"],
                network_bytes_per_s=one_way["network_gb_per_s"],
            ),
            power_w=self.figure("power_w", 1.0) if "power_w" in self.entry else None,
            prices=self.prices(),
        )

    def figure(self, field: str, factor: float) -> Figure:
        raw = self.entry.get(field)
        parts = raw if isinstance(raw, dict) else {"value": raw}
        if not set(parts) <= {"value", "source", "origin"}:
            raise self.wrong(field, sorted(map(str, parts)), "value, source and origin")
        value = self.number(field, parts.get("value"))
        source = parts.get("source", self.entry.get("source"))
        if not source or not isinstance(source, str):
            raise self.wrong(f"{field}.source", source, "where the figure was read")
        origin = parts.get("origin", self.entry.get("origin", "assumed"))
        if origin not in _ORIGINS:
            raise self.wrong(f"{field}.origin", origin, f"one of {', '.join(_ORIGINS)}")
        return Figure(value * factor, cast("Origin", origin), str(self.sources.get(source, source)))

    def number(self, field: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise self.wrong(field, "nothing" if value is None else value, "a number above zero")
        return float(value)

    def text(self, field: str) -> str:
        value = self.entry.get(field)
        if not isinstance(value, str) or not value:
            raise self.wrong(field, value, "a word")
        return value

    def aliases(self) -> tuple[str, ...]:
        raw = self.entry.get("aliases", [])
        names = raw.split(";") if isinstance(raw, str) else raw
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise self.wrong("aliases", raw, "a list of names")
        return tuple(n.strip() for n in names)

    def prices(self) -> tuple[Price, ...]:
        raw = self.entry.get("prices", [])
        if "usd_per_hour" in self.entry:
            raw = [{"usd_per_hour": self.entry["usd_per_hour"], "date": self.entry.get("price_date")}]
        if not isinstance(raw, list):
            raise self.wrong("prices", raw, "a list")
        return tuple(self.price(f"prices[{i}]", p) for i, p in enumerate(raw))

    def price(self, field: str, raw: object) -> Price:
        if not isinstance(raw, dict) or not set(raw) <= {"usd_per_hour", "seller", "date", "source"}:
            raise self.wrong(field, raw, "usd_per_hour, seller, date and source")
        both = raw.get("usd_per_hour")
        low, high = both if isinstance(both, list) and len(both) == 2 else (both, both)
        low, high = self.number(f"{field}.usd_per_hour", low), self.number(f"{field}.usd_per_hour", high)
        if low > high:
            raise self.wrong(f"{field}.usd_per_hour", both, "the lower price first")
        when = raw.get("date")
        if isinstance(when, str):
            try:
                when = date.fromisoformat(when)
            except ValueError:
                raise self.wrong(f"{field}.date", when, "a date such as 2026-05-20") from None
        if when is not None and not isinstance(when, date):
            raise self.wrong(f"{field}.date", when, "a date such as 2026-05-20")
        source = raw.get("source", self.entry.get("source", self.file))
        return Price(low, high, str(raw.get("seller", "own")), when, str(self.sources.get(source, source)))


def _halved(figure: Figure) -> Figure:
    return Figure(figure.value / 2, figure.origin, figure.source)
