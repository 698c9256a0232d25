"""Traces: one span per attempt, a child of the directive's span, only if an exporter is configured.

The span's context is sent with the callbacks, so that a command's trace includes the service.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucius.platform.directive import Directive
from lucius.platform.errors import ServiceUnusable

EXPORT_SECONDS_MAX = 5


class Traces:
    """Without an exporter there are no spans, and the directive's own context is passed on."""

    @contextmanager
    def attempt(self, directive: Directive) -> Iterator[AttemptSpan]:
        yield AttemptSpan(directive.traceparent)

    def close(self) -> None:
        return None


class AttemptSpan:
    def __init__(self, traceparent: str | None, span: Any = None) -> None:
        self.traceparent = traceparent
        self._span = span

    def ended(self, outcome: str) -> None:
        """How the attempt ended; anything but success marks the span. The text is left out: it may be tenant data."""
        if self._span is None:
            return
        self._span.set_attribute("lucius.outcome", outcome)
        if outcome != "SUCCEEDED":
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, outcome))


class ExportedTraces(Traces):
    def __init__(self, service: str, processor: Any) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create({"service.name": f"lucius-platform-{service}"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("lucius.platform")
        self._contexts = TraceContextTextMapPropagator()

    @contextmanager
    def attempt(self, directive: Directive) -> Iterator[AttemptSpan]:
        from opentelemetry.context import Context

        carrier = {"traceparent": directive.traceparent} if directive.traceparent else {}
        attributes: dict[str, str | int] = {
            "lucius.job_id": directive.job_id,
            "lucius.step_id": directive.step_id,
            "lucius.tenant_id": directive.tenant_id,
            "lucius.attempt_no": directive.attempt_no,
        }
        parent = self._contexts.extract(carrier, Context())
        span = self._tracer.start_span(f"step {directive.step_type}", parent, attributes=attributes)
        context = span.get_span_context()
        traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        try:
            yield AttemptSpan(traceparent, span)
        finally:
            span.end()

    def close(self) -> None:
        self._provider.shutdown()


def open_traces(service: str, endpoint: str) -> Traces:
    if not endpoint:
        return Traces()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ServiceUnusable(
            "LUCIUS_OTLP_ENDPOINT needs the extra `otel`: pip install '.[otel]'"
            " in a clone of LUCIUS, or remove the setting"
        ) from error
    address = endpoint.rstrip("/")
    if not address.endswith("/v1/traces"):
        address += "/v1/traces"
    return ExportedTraces(service, BatchSpanProcessor(OTLPSpanExporter(endpoint=address, timeout=EXPORT_SECONDS_MAX)))
