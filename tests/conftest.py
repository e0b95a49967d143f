"""What all tests share: which of them can run here."""

import pytest
from tests.shared import ABSENT, shared_data


def pytest_report_header() -> str:
    """Says whether tests on recorded data are part of this run."""
    where = shared_data()
    return f"recorded data: {'absent, tests marked shared are left out' if where == ABSENT else where}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests on recorded data where there are none."""
    if shared_data() != ABSENT:
        return
    left_out = [item for item in items if item.get_closest_marker("shared")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
