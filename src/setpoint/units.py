"""Human units at the edges, base units inside: seconds, bytes, tokens, per second, shares of one.

Every ``parse_*`` takes what a person writes in a card or an option and returns a float or int in base units, or
raises ``ValueError`` with what was expected. Every ``format_*`` is for reports and terminals only.
"""

import math
import re
from decimal import Decimal

_NUMBER = r"([+-]?(?:\d+(?:[_,]\d{3})*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)"
_QUANTITY = re.compile(rf"^\s*{_NUMBER}\s*([^\d\s].*?)?\s*$")

_SECONDS: dict[str, str | int] = {
    "ns": "1e-9", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ms": "1e-3",
    "s": 1, "sec": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_BYTES = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_PER = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "min": 60,
    "m": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
}
_MULTIPLES = {"": 1, "k": 1000, "m": 1_000_000, "ki": 2**10, "mi": 2**20}
MOST_TOKENS = 10**15  # whole up to here in a double


def _split(text: str | float, expected: str) -> tuple[Decimal, str]:
    """Number and unit. Decimal, so that "9 ms" is 0.009 and "1.001k" is 1,001."""
    match = _QUANTITY.match(str(text))
    if match is None:
        raise ValueError(f"expected {expected}")
    digits = match.group(1).replace(",", "").replace("_", "")
    if float(digits) and not 1e-300 < abs(float(digits)) < 1e300:
        raise ValueError(f"expected {expected}")
    return Decimal(digits) if float(digits) else Decimal(0), (match.group(2) or "").strip()


def parse_duration(text: str | float) -> float:
    """Seconds from ``"800 ms"``, ``"3m"``, ``"1m30s"`` or a bare number of seconds; never negative."""
    expected = 'a duration such as "800 ms", "3m" or "1m30s"'
    parts = re.findall(rf"{_NUMBER}\s*([a-zµ]+)", str(text).strip())
    if len(parts) > 1 and "".join(f"{n}{u}" for n, u in parts) == re.sub(r"\s+", "", str(text)):
        return sum(parse_duration(f"{n}{u}") for n, u in parts)
    value, unit = _split(text, expected)
    factor = 1 if unit == "" else _SECONDS.get(unit if unit in _SECONDS else unit.lower())
    if factor is None or value < 0:
        raise ValueError(f"expected {expected}")
    return float(value * Decimal(factor))


def parse_rate(text: str | float) -> float:
    """Events per second from ``"2/s"``, ``"90/min"`` or a bare number per second; above zero."""
    expected = 'a rate such as "2/s" or "90/min"'
    head, slash, per = str(text).partition("/")
    value, unit = _split(head, expected)
    words = {"", "req", "request", "requests", "rps", "session", "sessions"}
    factor = _PER.get(per.strip().lower()) if slash else 1
    if unit.lower() not in words or factor is None or value <= 0:
        raise ValueError(f"expected {expected}")
    return float(value / factor)


def parse_tokens(text: str | float) -> int:
    """Tokens from ``512``, ``"16k"`` (16,000) or ``"1.5M"``; ``"16Ki"`` is 16,384."""
    expected = 'a number of tokens such as 512, "16k" or "16Ki"'
    value, unit = _split(text, expected)
    unit = re.sub(r"\s*tok(en)?s?$", "", unit.lower())
    factor = _MULTIPLES.get(unit)
    if factor is None or not 0 <= value * factor <= MOST_TOKENS or value * factor % 1:
        raise ValueError(f"expected {expected}")
    return int(value * factor)


def parse_share(text: str | float) -> float:
    """A share of one from ``"99.5%"`` or ``0.995``."""
    expected = 'a share such as "99%" or 0.99'
    value, unit = _split(text, expected)
    value = value / 100 if unit == "%" else value
    if unit not in ("", "%") or not 0 <= value <= 1:
        raise ValueError(f"expected {expected}")
    return float(value)


def parse_quantile(text: str | float) -> float:
    """A quantile in (0, 1) from ``"p95"``, ``"p99.9"``, ``"95%"`` or ``0.95``."""
    expected = 'a quantile such as "p95" or 0.95'
    word = str(text).strip().lower()
    try:
        value = parse_share(f"{word[1:]}%" if word.startswith("p") else word)
    except ValueError:
        raise ValueError(f"expected {expected}") from None
    if not 0 < value < 1:
        raise ValueError(f"expected {expected}")
    return round(value, 12)


def parse_bytes(text: str | float) -> int:
    """Bytes from ``"80 GB"`` (decimal) or ``"80 GiB"`` (binary) or a bare number of bytes."""
    expected = 'a size such as "80 GB" or "24 GiB"'
    value, unit = _split(text, expected)
    factor = _BYTES.get(unit.lower())
    if factor is None or value < 0:
        raise ValueError(f"expected {expected}")
    return round(value * factor)


def format_duration(seconds: float) -> str:
    """Three significant figures with the unit that keeps the number between 1 and 1000: ``"812 ms"``."""
    magnitude = abs(seconds)
    if magnitude >= 90:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if magnitude >= factor * 0.9995:
            return f"{format_number(seconds / factor)} {unit}"
    return "0 s" if seconds == 0 else f"{format_number(seconds * 1e9)} ns"


def format_number(value: float, figures: int = 3) -> str:
    """A number rounded to significant figures, never in scientific notation below a million."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{figures}g}")
    decimals = figures - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}" if abs(rounded) < 1000 else f"{rounded:,.0f}"


def format_bytes(count: float) -> str:
    """Bytes in binary units: ``"1.50 GiB"``."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(count) >= 1024**power:
            return f"{format_number(count / 1024**power)} {unit}"
    return f"{count:.0f} B"


def format_share(share: float) -> str:
    """A share as per cent with one decimal, more where rounding would claim 0% or 100%."""
    for decimals in (1, 2, 3):
        text = f"{share * 100:.{decimals}f}"
        if share in (0.0, 1.0) or float(text) not in (0.0, 100.0):
            break
    return f"{text}%"


def format_quantile(quantile: float) -> str:
    """``0.95`` as ``"p95"``, ``0.999`` as ``"p99.9"``."""
    return f"p{quantile * 100:g}"
