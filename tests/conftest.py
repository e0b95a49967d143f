"""What all tests share: which of them can run here."""

import os

import pytest
from tests.shared import ABSENT, shared_data


def pytest_report_header() -> list[str]:
    """Says which tests are part of this run."""
    where = shared_data()
    recorded = "absent, tests marked shared are left out" if where == ABSENT else str(where)
    vllm = "part of this run" if os.environ.get("SETPOINT_TEST_VLLM") else "left out, make test-vllm runs them"
    return [f"recorded data: {recorded}", f"tests on vLLM: {vllm}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests on recorded data where there are none, and those on vLLM unless they were asked for."""
    absent = {name for name in ("shared",) if shared_data() == ABSENT}
    absent |= set() if os.environ.get("SETPOINT_TEST_VLLM") else {"vllm"}
    absent |= set() if os.environ.get("SETPOINT_INSPECT") else {"inspect"}
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in absent)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
