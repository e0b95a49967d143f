"""OpenTelemetry spans under the semantic conventions for generative AI: one an exchange, made of its journal line.

The data path knows nothing of them: the supervisor makes them once an exchange is on record. A client's W3C context is
their parent; the engine was told the ids of the span to come, so that its own stand below (see ``trace_context``).
"""

from typing import TYPE_CHECKING

from setpoint.errors import UsageError
from setpoint.gateway.config import Replica
from setpoint.gateway.journal import Ended
from setpoint.gateway.trace_context import span_id, trace_id

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor

NS = 1_000_000_000
OPERATIONS = {
    "openai-chat": "chat",
    "anthropic-messages": "chat",
    "openai-responses": "chat",
    "openai-completions": "text_completion",
    "openai-embeddings": "embeddings",
}


class Spans:
    """Sends spans.

    Args:
        processor: Takes them; the batch processor of the OTLP exporter unless given.

    Raises:
        UsageError: OpenTelemetry is not installed.
    """

    def __init__(self, processor: "SpanProcessor | None" = None) -> None:
        try:
            from opentelemetry import trace  # noqa: PLC0415 - an extra
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
            from opentelemetry.sdk.trace.id_generator import IdGenerator  # noqa: PLC0415
        except ImportError:
            raise UsageError("telemetry needs OpenTelemetry.", fix="Install setpoint[telemetry].") from None

        class OfExchange(IdGenerator):
            """The ids of the span that is made at the moment."""

            exchange = "0"

            def generate_span_id(self) -> int:
                return span_id(self.exchange)

            def generate_trace_id(self) -> int:
                return trace_id(self.exchange)

        self._trace = trace
        self._ids = OfExchange()
        resource = Resource.create({"service.name": "setpoint-gateway"})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("setpoint.gateway")

    def observe(self, line: Ended, replica: Replica | None = None) -> None:
        """The span of an exchange; those that never became one have none. ``replica`` is what served it."""
        if not line.model:
            return
        begin, operation = int(line.time * NS), OPERATIONS.get(line.dialect, "chat")
        self._ids.exchange = line.id
        span = self._tracer.start_span(
            f"{operation} {line.model}",
            context=self._parent(line.trace),
            kind=self._trace.SpanKind.SERVER,
            start_time=begin,
            attributes={
                name: value for name, value in _attributes(line, operation, replica).items() if value is not None
            },
        )
        if line.ttft_s is not None:
            span.add_event("first visible token", timestamp=begin + int(line.ttft_s * NS))
        if line.outcome not in ("complete", "length"):
            span.set_attribute("error.type", line.outcome)
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(begin + int(line.latency_s * NS))

    def _parent(self, trace: str | None) -> "Context | None":
        if trace is None:
            return None
        _, trace_id, span_id, flags = trace.split("-")
        context = self._trace.SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=self._trace.TraceFlags(int(flags, 16))
        )
        return self._trace.set_span_in_context(self._trace.NonRecordingSpan(context))

    def close(self) -> None:
        """Sends what is left."""
        self._provider.shutdown()


def _attributes(
    line: Ended, operation: str, replica: Replica | None
) -> dict[str, str | list[str] | int | float | bool | None]:
    spoken = "anthropic" if line.dialect.startswith("anthropic") else "openai"
    return {
        "gen_ai.provider.name": (replica.engine if replica else None) or spoken,  # what is known of who answers
        "gen_ai.operation.name": operation,
        "gen_ai.request.model": line.model,
        "gen_ai.response.id": line.id,
        "gen_ai.response.finish_reasons": None if line.finish_reason is None else [line.finish_reason],
        "gen_ai.usage.input_tokens": line.prompt_tokens,
        "gen_ai.usage.output_tokens": line.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": line.cached_tokens,
        "http.response.status_code": line.sent_status,
        "setpoint.outcome": line.outcome,
        "setpoint.tenant": line.tenant,
        "setpoint.replica": line.replica,
        "setpoint.queue_s": line.queue_s,
        "setpoint.ttft_s": line.ttft_s,
        "setpoint.attempts": line.attempts,
        "setpoint.predicted_tokens": line.predicted_tokens,
        "setpoint.config": line.config,
        "setpoint.engine.name": replica.engine if replica else None,
        "setpoint.engine.version": replica.engine_version if replica else None,
        "setpoint.engine.config": replica.engine_config if replica else None,
    }
