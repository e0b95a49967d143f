"""Spans under the semantic conventions, below the client's own trace."""

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.gateway.test_ledger import ended

from setpoint.gateway import trace_context
from setpoint.gateway.config import Replica
from setpoint.gateway.health import cache_tokens
from setpoint.gateway.telemetry import Spans

IDS = ("a94a8fe5ccb19ba61c4c0873", "0123456789abcdef01234567")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_an_exchange_is_a_span_below_the_clients() -> None:
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter))
    replica = Replica(url="http://h:1", engine="vllm", engine_version="0.33.0", engine_config="5b1d0c9e77aa")
    spans.observe(
        ended(1, id=IDS[0], dialect="openai-chat", trace=TRACE, ttft_s=0.05, cached_tokens=3, finish_reason="stop"),
        replica,
    )
    spans.observe(ended(2, id=IDS[1], dialect="openai-embeddings", outcome="truncated", status=502))
    spans.observe(ended(3, model="", outcome="refused", status=401, sent_status=401))
    one, two = exporter.get_finished_spans()
    spans.close()
    assert one.name == "chat m"
    assert one.parent is not None
    assert f"{one.parent.trace_id:032x}-{one.parent.span_id:016x}" == TRACE[3:-3]
    assert one.attributes is not None
    assert one.attributes["gen_ai.provider.name"] == "vllm"
    assert one.attributes["gen_ai.response.finish_reasons"] == ("stop",)  # a list, as the conventions have it
    assert one.attributes["gen_ai.usage.input_tokens"] == 5
    assert one.attributes["gen_ai.usage.cache_read.input_tokens"] == 3
    about = ("vllm", "0.33.0", "5b1d0c9e77aa")
    assert tuple(one.attributes[f"setpoint.engine.{name}"] for name in ("name", "version", "config")) == about
    assert (one.end_time or 0) - (one.start_time or 0) == 100_000_000
    told = [trace_context.passed_on({"traceparent": TRACE}, IDS[0]), trace_context.passed_on({}, IDS[1])]
    for span, words in zip((one, two), told, strict=True):  # what the engine was told is the span that was made
        assert words == f"traceparent: 00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01\r\n"
    assert two.parent is None
    assert two.name == "embeddings m"
    assert two.attributes is not None
    assert "gen_ai.response.finish_reasons" not in two.attributes
    assert two.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize(
    ("fields", "exchange", "told"),
    [
        ({}, None, ""),
        ({"traceparent": "none", "tracestate": "a=1"}, None, ""),
        ({"traceparent": "00-" + "0" * 32 + "-b7ad6b7169203331-01"}, None, ""),
        ({"traceparent": TRACE, "tracestate": "a=1"}, None, f"traceparent: {TRACE}\r\ntracestate: a=1\r\n"),
        ({"tracestate": "a=1"}, IDS[1], "traceparent: 00-0123456789abcdef0123456701234567-0123456789abcdef-01\r\n"),
        (
            {"traceparent": TRACE[:-2] + "00", "tracestate": "a=1"},
            IDS[1],
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-0123456789abcdef-00\r\ntracestate: a=1\r\n",
        ),
    ],
)
def test_the_engine_is_told_whose_span_is_its_parent(fields: dict[str, str], exchange: str | None, told: str) -> None:
    assert trace_context.passed_on(fields, exchange) == told


def test_the_size_of_vllms_cache_is_read_from_its_metrics() -> None:
    text = b'# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0\n'
    assert cache_tokens(text) == 16_000
    assert cache_tokens(b'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n') == 0
    assert cache_tokens(b"llamacpp:requests_processing 1\n") == 0
