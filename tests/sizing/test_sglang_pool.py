"""SGLang's separate pools."""

import pytest
from tests.models.specs import GEMMA_4_E4B, stored

from setpoint.sizing.deployment import Deployment
from setpoint.sizing.engine import engine_of
from setpoint.sizing.sglang_pool import pools_of

GIB = 2**30
SGLANG = engine_of("sglang", "0.5.13")


def test_windows_get_eight_tenths_of_the_full_pool() -> None:
    """Row 50: 805,556 and 644,444 tokens; every layer keeps its own keys, also those that read an earlier one's."""
    found = pools_of(GEMMA_4_E4B, Deployment(SGLANG, 32768), 64.54 * GIB)
    assert (found.token_bytes, found.window_token_bytes) == (28672, 71680)
    assert found.tokens == pytest.approx(805556, rel=0.001)
    assert found.window_tokens == pytest.approx(644444, rel=0.001)


def test_states_have_slots_of_their_own() -> None:
    spec = stored("Qwen--Qwen3.5-27B")
    found = pools_of(spec, Deployment(SGLANG, 32768), 10 * GIB, 9 * GIB)
    assert found.state_slots == int(9 * GIB // found.state_bytes)
    assert found.state_bytes == 48 * (48 * 128 * 128 * 4 + 10240 * 3 * 2)
    assert found.token_bytes == 65536


def test_logged_states_have_their_size() -> None:
    """A DGX Spark log (index id 69213517065): 360 slots and a spare one are 50.77 GB of states and 0.99 of windows."""
    spec = stored("Qwen--Qwen3.5-27B")
    found = pools_of(spec, Deployment(SGLANG, 32768, kv_dtype="fp8"), 6.98 * GIB, 51.76 * GIB)
    assert found.state_slots == 361
    assert found.tokens == pytest.approx(228520, rel=0.002)


def test_pages_round_down() -> None:
    spec = stored("Qwen--Qwen3-8B")
    found = pools_of(spec, Deployment(SGLANG, 32768, block_tokens=64), 10 * GIB)
    assert found.tokens % 64 == 0
