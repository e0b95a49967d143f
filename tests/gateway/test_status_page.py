"""The status page, looked at in headless Chromium."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from setpoint.gateway.status_page import page

STATUS: dict[str, Any] = {
    "config": "a1b2c3d4e5f6", "workers": 4, "pids": [1, 2, 3, 4], "in_flight": 37, "waiting": 5, "connections": 1112,
    "lag_ms": 1.2,
    "replicas": [
        {"model": model, "name": name, "state": state, "in_flight": 31, "max_in_flight": 64, "queued_tokens": 182345,
         "ejected_for_s": ejected}
        for model, name, state, ejected in (
            ("qwen3-32b-instruct-2507", "gpu-node-03.internal.example.com:8000", "up", 0.0),
            ("qwen3-32b-instruct-2507", "10.0.0.12:8000", "down", 12.3),
            ("<script>alert(1)</script>", "10.0.0.13:8000", "loading", 0.0),
            ("embed", "r9", "unknown", 0.0),
        )
    ],
    "usage": [
        {"tenant": tenant, "model": "qwen3-32b-instruct-2507", "outcome": outcome, "requests": 1234567,
         "prompt_tokens": 9876543210, "cached_tokens": 8765432109, "completion_tokens": 123456789}
        for tenant, outcome in (("acme-production", "complete"), ("acme", "reasoning_exhausted"), ("", "refused"))
    ],
}  # fmt: skip
PROBE = """<script>
const errors=[];addEventListener("error",e=>errors.push(String(e.message)));
const light=c=>{const v=c.match(/[\\d.]+/g).slice(0,3).map(x=>{x/=255;return x<=.03928?x/12.92:((x+.055)/1.055)**2.4});
return .2126*v[0]+.7152*v[1]+.0722*v[2]};
addEventListener("load",()=>{const dark=matchMedia("(prefers-color-scheme: dark)").matches,ground=dark?.0060:1;
const contrast=[...document.querySelectorAll("p,th,td,h1,h2")].filter(e=>e.getClientRects().length).map(e=>{
const l=light(getComputedStyle(e).color);return (Math.max(l,ground)+.05)/(Math.min(l,ground)+.05)});
document.title="probe "+JSON.stringify({dark,wide:document.documentElement.scrollWidth,view:innerWidth,errors,
loaded:performance.getEntriesByType("resource").length,contrast:Math.min(...contrast),
cut:[...document.querySelectorAll("td")].filter(e=>e.scrollWidth>e.clientWidth+1).length})})
</script></head>"""


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_shows_the_page_readably_and_loads_nothing(tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing sticks out or is cut, in light and dark all text has a contrast of 4.5 (WCAG AA)."""
    file = tmp_path / "status.html"
    file.write_text(page(STATUS).replace("</head>", PROBE), encoding="utf-8")
    done = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         f"--window-size={width},900", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
         "--virtual-time-budget=3000", "--dump-dom", f"file://{file}"],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    found = re.search(r"<title>probe (.*?)</title>", done.stdout)
    assert found, done.stderr[-500:]
    seen = json.loads(found[1].replace("&quot;", '"'))
    assert seen["dark"] is dark
    assert seen["errors"] == []
    assert seen["loaded"] == 0
    assert seen["wide"] <= seen["view"]
    assert seen["cut"] == 0
    assert seen["contrast"] >= 4.5


def test_names_on_the_page_are_never_markup() -> None:
    html = page(STATUS)
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_the_page_before_the_first_request() -> None:
    assert "no request yet" in page(STATUS | {"usage": []})
