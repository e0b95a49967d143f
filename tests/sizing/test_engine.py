"""Engine versions and the rules that hang on them."""

import pytest

from setpoint.errors import UsageError
from setpoint.sizing.engine import engine_of


@pytest.mark.parametrize("version", ["0.19.0", "v0.11.0rc2", "0.26.1rc1.dev608", "0.18.2rc1.dev73+gdb7a17ecc", "0.7"])
def test_versions_as_logs_print_them_are_read(version: str) -> None:
    assert engine_of("vllm", version).version[0] == 0


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("vllm", "dev", "cannot be read"),
        ("vllm", "0.3.0", "rules of vllm 0.3.0 are not known"),
        ("vllm", "1.2.0", "rules of vllm 1.2.0 are not known"),
        ("triton", "24.01", "engine 'triton' are not known"),
    ],
)
def test_unknown_engines_and_versions_are_refused(name: str, version: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        engine_of(name, version)


def test_rules_change_at_the_versions_where_logs_change() -> None:
    old, new = engine_of("vllm", "0.19.1"), engine_of("vllm", "0.21.0")
    assert (old.prints_capacity_of_requests, new.prints_capacity_of_requests) == (False, True)
    assert not engine_of("vllm", "0.20.0").prints_capacity_of_requests
    assert engine_of("vllm", "0.20.0").charges_graphs
    assert engine_of("vllm", "0.7.3").is_v0
    assert not engine_of("vllm", "0.7.3", "v1").is_v0
