"""Human units in, base units out; and back for people to read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("800 ms", 0.8),
        ("3m", 180),
        ("1m30s", 90),
        ("2 h", 7200),
        ("250us", 250e-6),
        (1.5, 1.5),
        ("1,500 ms", 1.5),
    ],
)
def test_durations_are_read(text: str | float, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "-1 s", "800 parsecs", "nan", "1m30", "1e999 s", "inf"])
def test_a_wrong_duration_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("2/s", 2), ("90/min", 1.5), ("1,000 req/s", 1000), (0.5, 0.5), ("2 rps", 2)]
)
def test_rates_are_read(text: str | float, rate: float) -> None:
    assert units.parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["0/s", "-2/s", "2/fortnight", "2 ms", "/s"])
def test_a_wrong_rate_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected a rate"):
        units.parse_rate(text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("16k", 16000), ("16Ki", 16384), (512, 512), ("1.5M", 1_500_000), ("128 tokens", 128)],
)
def test_tokens_are_read(text: str | int, tokens: int) -> None:
    assert units.parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["-1", "1.5", "16kb", "many"])
def test_a_wrong_token_count_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of tokens"):
        units.parse_tokens(text)


@pytest.mark.parametrize(("text", "value"), [("p95", 0.95), ("p99.9", 0.999), (0.5, 0.5), ("95%", 0.95)])
def test_quantiles_are_read(text: str | float, value: float) -> None:
    assert units.parse_quantile(text) == value


@pytest.mark.parametrize("text", ["p100", "p0", 95, "p-1", 1.0])
def test_a_wrong_quantile_is_an_error(text: str | float) -> None:
    with pytest.raises(ValueError, match="expected a quantile"):
        units.parse_quantile(text)


@pytest.mark.parametrize(("text", "count"), [("80 GB", 80 * 10**9), ("24 GiB", 24 * 2**30), (5, 5), ("1.5kb", 1500)])
def test_bytes_are_read(text: str | int, count: int) -> None:
    assert units.parse_bytes(text) == count


@given(st.floats(min_value=1e-6, max_value=80))
def test_a_formatted_duration_reads_back_within_half_a_percent(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == pytest.approx(seconds, rel=5.1e-3)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.812, "812 ms"), (0.0, "0 s"), (1.234, "1.23 s"), (185, "3m05s"), (7260, "2h01m"), (0.9999, "1.00 s")],
)
def test_durations_are_printed(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(("share", "text"), [(1.0, "100.0%"), (0.9996, "99.96%"), (0.0, "0.0%"), (0.952, "95.2%")])
def test_a_share_never_rounds_to_all_or_nothing(share: float, text: str) -> None:
    assert units.format_share(share) == text
