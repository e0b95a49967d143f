from datetime import date
from pathlib import Path

import pytest

from setpoint.errors import UsageError
from setpoint.hardware import catalogue, find, parse_fleet
from setpoint.hardware.reading import MAX_BYTES, read_accelerators

FIELDS = {
    "vendor": "Acme",
    "architecture": "Anvil",
    "source": "own measurement",
    "memory_gb": "96",
    "usable_gib": "88",
    "bandwidth_gb_per_s": "2000",
    "bf16_tflops": "400",
    "link": "AcmeLink",
    "link_gb_per_s": "200",
    "link_domain": "4",
    "server": "4",
    "bus_gb_per_s": "64",
    "network_gb_per_s": "50",
}


def yaml_with(**changed: str | None) -> bytes:
    fields = {**FIELDS, **changed}
    lines = [f"    {key}: {value}" for key, value in fields.items() if value is not None]
    return "\n".join(["accelerators:", "  ACME-1:", *lines]).encode()


def read(content: bytes) -> None:
    read_accelerators(content, "own.yaml", format_="yaml")


def test_an_own_yaml_file_adds_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(
        yaml_with()
        + b"\n"
        + yaml_with(memory_gb="81", usable_gib="75").split(b"\n", 1)[1].replace(b"ACME-1", b"h100 sxm")
    )
    known = catalogue(path)
    assert len(known) == len(catalogue()) + 1
    acme = find("acme 1", known)
    assert acme.flops["bf16"].value == 400e12
    assert acme.links.bytes_per_s.value == 100e9
    assert (acme.memory_bytes.origin, acme.memory_bytes.source) == ("assumed", "own measurement")
    assert find("H100-SXM", known).memory_bytes.value == 81e9
    assert find("H100-SXM").memory_bytes.value == 80e9
    assert parse_fleet("ACME-1:2", known).count == 2


def test_an_own_csv_file_holds_one_accelerator_a_row(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    fields = {
        "name": "ACME-2",
        **FIELDS,
        "aliases": "a2;acme",
        "usd_per_hour": "1.5",
        "price_date": "2026-11-30",
        "origin": "measured",
    }
    path.write_text(",".join(fields) + "\n" + ",".join(fields.values()) + "\n")
    found = find("a2", catalogue(path))
    assert found.aliases == ("a2", "acme")
    assert found.bandwidth_bytes_per_s.origin == "measured"
    assert [(p.low, p.high, p.date) for p in found.prices] == [(1.5, 1.5, date(2026, 11, 30))]


def test_a_figure_may_have_its_own_source_and_origin() -> None:
    content = yaml_with(bandwidth_gb_per_s="{value: 1900, source: log, origin: logged}")
    figure = read_accelerators(content, "own.yaml", format_="yaml")["ACME-1"].bandwidth_bytes_per_s
    assert (figure.value, figure.source, figure.origin) == (1.9e12, "log", "logged")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory_gb": None}, "memory_gb: found 'nothing', expected a number above zero"),
        ({"memory_gb": "0"}, "memory_gb: found '0'"),
        ({"memory_gb": "-3"}, "memory_gb"),
        ({"memory_gb": ".nan"}, "memory_gb"),
        ({"memory_gb": "true"}, "memory_gb"),
        ({"memory_gb": "80 GB"}, "memory_gb: found '80 GB'"),
        ({"usable_gib": "100"}, "usable_gib.*no more than the nominal"),
        ({"bf16_tflops": None}, "bf16_tflops.*fp16_tflops"),
        ({"memroy_gb": "80"}, "a field: found 'memroy_gb', expected one of"),
        ({"source": None}, "memory_gb.source: found 'None', expected where the figure was read"),
        ({"origin": "guessed"}, "origin: found 'guessed', expected one of datasheet"),
        ({"vendor": None}, "vendor"),
        ({"aliases": "3"}, "aliases: found '3', expected a list of names"),
        ({"bandwidth_gb_per_s": "{value: 1, unit: TB}"}, "value, source and origin"),
        ({"prices": "3"}, "prices: found '3', expected a list"),
        ({"prices": "[{usd_per_hour: [3, 2]}]"}, "the lower price first"),
        ({"prices": "[{usd_per_hour: 3, date: soon}]"}, "a date such as 2026-05-20"),
        ({"prices": "[{usd_per_hour: 3, date: 7}]"}, "a date such as 2026-05-20"),
        ({"prices": "[{eur_per_hour: 3}]"}, r"prices\[0\]"),
    ],
)
def test_a_wrong_field_is_named(changed: dict[str, str | None], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(yaml_with(**changed))
    assert str(caught.value).startswith("own.yaml: ACME-1: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a mapping"),
        (b"- a", "must be a mapping"),
        (b"accelerators: {}", "has no `accelerators`"),
        (b"accelerators: {X: 3}", "the entry: found '3', expected fields"),
        (b"sources: 3\naccelerators: {X: {}}", "`sources` must map"),
        (b"a: [", "not valid YAML near line"),
        (b"a: &a [1]\nb: *a", "aliases"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 100_000, "nested more than 12 deep"),
        (b"".join(b" " * i + b"a:\n" for i in range(500)), "nested more than 12 deep"),
        (b" " * (MAX_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_of_another_kind_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,vendor\n,Acme", "line 2 has no name"),
        ("name,vendor\nA,Acme\nA,Acme", "line 3 repeats a name"),
        ("name,vendor\nA,Acme,more", "line 2 has more cells than columns"),
        ("name,vendor", "has no `accelerators`"),
        ("name,vendor\nA,Acme", "A: memory_gb"),
    ],
)
def test_a_wrong_csv_file_is_refused(content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_accelerators(content.encode(), "own.csv", format_="csv")


def test_a_file_that_is_not_there_or_of_no_known_kind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        catalogue(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match=r"neither \.yaml nor \.csv"):
        catalogue(tmp_path / "hardware.json")


def test_the_example_in_the_documentation_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs/hardware.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    found = read_accelerators(example.encode(), "example", format_="yaml")["H100-SXM"]
    assert found.usable_bytes.origin == "logged"
    assert found.memory_bytes.source == "offer of ACME Cloud, 2026-11-30"
    assert [(p.low, p.high, p.date) for p in found.prices] == [(2.1, 2.4, date(2026, 11, 30))]
