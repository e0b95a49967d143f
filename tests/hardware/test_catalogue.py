import pytest

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator, catalogue, find, parse_fleet


@pytest.mark.parametrize("accelerator", catalogue().values(), ids=lambda a: a.name)
def test_every_figure_says_where_it_comes_from(accelerator: Accelerator) -> None:
    for name, figure in accelerator.figures().items():
        assert figure.value > 0, name
        assert figure.origin in ("datasheet", "logged", "assumed"), name
        assert len(figure.source) > 10, name


@pytest.mark.parametrize("accelerator", catalogue().values(), ids=lambda a: a.name)
def test_figures_are_dense_and_plausible(accelerator: Accelerator) -> None:
    """A sparse figure listed as dense shows as a ratio of four between neighbouring precisions."""
    wide = accelerator.rate("bf16").value
    assert 1 <= accelerator.rate("fp8").value / wide <= 2.03  # L40S: 362.05 and 733
    assert accelerator.usable_bytes.value <= accelerator.memory_bytes.value * 1.08
    assert accelerator.usable_bytes.value >= accelerator.memory_bytes.value * 0.9
    # Operations per byte: no accelerator is built below 30 (H20: 37) or above 1000 in 16 bits.
    assert 30 < wide / accelerator.bandwidth_bytes_per_s.value < 1000


def test_known_figures() -> None:
    """NVIDIA H100 SXM: 80 GB, 3.35 TB/s, 989 TFLOPS dense BF16; 900 GB/s NVLink is both directions together."""
    h100 = find("H100-SXM")
    assert h100.memory_bytes.value == 80e9
    assert h100.bandwidth_bytes_per_s.value == 3350e9
    assert h100.rate("bf16").value == 989e12
    assert h100.rate("fp8").value == 1978e12
    assert h100.links.bytes_per_s.value == 450e9
    assert h100.usable_bytes.value == pytest.approx(79.18 * 2**30)


def test_a_precision_without_a_unit_is_computed_in_a_wider_one() -> None:
    assert find("H100").computes_in("fp4") == "bf16"
    assert find("B200").computes_in("fp4") == "fp4"
    assert find("A100").computes_in("fp8") == "bf16"
    assert find("T4").computes_in("bf16") == "fp16"


def test_groups_beyond_a_domain_use_the_bus_or_the_network() -> None:
    h100, l4, bridged = find("H100-SXM"), find("L4"), find("H100-NVL")
    assert h100.links.slowest(8) == 450e9
    assert h100.links.slowest(9) == h100.links.network_bytes_per_s.value == 50e9
    assert l4.links.slowest(8) == l4.links.bus_bytes_per_s.value == 32e9
    assert bridged.links.slowest(2) == 300e9
    assert bridged.links.slowest(4) == 64e9
    assert find("GB200").links.slowest(72) == 900e9


@pytest.mark.parametrize("name", ["H100-SXM", "h100 sxm", "H100_SXM5", "h100"])
def test_names_are_found_in_any_spelling(name: str) -> None:
    assert find(name).name == "H100-SXM"


@pytest.mark.parametrize(("name", "meant"), [("H10", "H100-SXM"), ("B2000", "B200-SXM"), ("MI300", "MI300X")])
def test_an_unknown_name_is_answered_with_near_ones(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"No accelerator is called '{name}'.*{meant}"):
        find(name)


def test_a_name_like_none_points_to_the_list() -> None:
    with pytest.raises(UsageError, match="hardware list"):
        find("quantum abacus")
    with pytest.raises(UsageError, match="hardware list"):
        find("---")


def test_aliases_belong_to_one_accelerator() -> None:
    labels = [label.casefold() for a in catalogue().values() for label in (a.name, *a.aliases)]
    assert len(labels) == len(set(labels))


def test_a_fleet_is_a_name_and_a_count() -> None:
    fleet = parse_fleet(" H100-SXM:4 ")
    assert (fleet.accelerator.name, fleet.count, str(fleet)) == ("H100-SXM", 4, "H100-SXM:4")
    assert parse_fleet("L40S").count == 1


@pytest.mark.parametrize("text", ["H100:0", "H100:-1", "H100:four", "H100:1.5", "H100:", "H100:99999", "H100:1e3"])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="whole number from 1 to 4096"):
        parse_fleet(text)


def test_prices_have_a_source_and_most_a_date() -> None:
    prices = [price for a in catalogue().values() for price in a.prices]
    assert len(prices) >= 10
    assert all(0 < p.low <= p.middle <= p.high and p.source and p.seller for p in prices)
    assert any(p.date is not None for p in prices)
