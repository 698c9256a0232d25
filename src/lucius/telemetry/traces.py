"""Traces: spans are created explicitly, and only if an exporter is set; otherwise the caller's context is passed on.

A job keeps the `traceparent` it was accepted with. Every directive is a child span, whose context goes to the service
and comes back with its callbacks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol
from uuid import UUID

from lucius.domain.job import Job
from lucius.settings import Settings, SettingsError

CLOSE_SECONDS_MAX = 5.0
EXPORT_SECONDS_MAX = 5

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
Attribute = str | int | float | bool


class Span(AbstractContextManager["Span"], Protocol):
    traceparent: str | None
    """The context to pass on for child spans; None if nothing is traced: then pass on the caller's."""

    def set(self, name: str, value: Attribute) -> None: ...


class _NoSpan:
    """Shared, so that a span that is not exported costs nothing."""

    traceparent: str | None = None

    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def set(self, name: str, value: Attribute) -> None:
        return None


_NO_SPAN = _NoSpan()


class Traces:
    """Without an exporter: no spans."""

    enabled = False

    async def __aenter__(self) -> Traces:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def span(self, name: str, traceparent: str | None = None, **attributes: Attribute) -> Span:
        """A context manager for a span, a child of the caller's if there is one. An exception inside marks it as
        failed."""
        return _NO_SPAN

    def trace(self, job: Job, step_index: int) -> str | None:
        """The `traceparent` of a directive; None means the job's own."""
        return None

    def temporal_interceptors(self) -> list[Any]:
        """The interceptor that joins Temporal's spans to these."""
        return []


def open_traces(settings: Settings) -> Traces:
    """Traces as configured. Raises `SettingsError` if an exporter is set and its library is not installed."""
    if not settings.otlp_endpoint:
        return Traces()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise SettingsError(
            "LUCIUS_OTLP_ENDPOINT needs the extra `otel`: pip install '.[otel]'"
            " in a clone of LUCIUS, or leave the setting out"
        ) from error
    endpoint = settings.otlp_endpoint.rstrip("/")
    if not endpoint.endswith("/v1/traces"):
        endpoint += "/v1/traces"
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS_MAX)
    return ExportedTraces(BatchSpanProcessor(exporter, max_queue_size=4_096))


class ExportedTraces(Traces):
    """Spans, passed to a span processor of the OpenTelemetry SDK."""

    enabled = True

    def __init__(self, processor: Any) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        self._provider = TracerProvider(resource=Resource.create({"service.name": "lucius"}), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("lucius")
        self._context = _context_maker()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Export the remaining spans, within a time limit."""
        try:
            await asyncio.wait_for(asyncio.to_thread(self._provider.shutdown), CLOSE_SECONDS_MAX)
        except TimeoutError:
            return

    def span(self, name: str, traceparent: str | None = None, **attributes: Attribute) -> Span:
        return _ExportedSpan(self._tracer.start_span(name, self._context(traceparent), attributes=_named(attributes)))

    def trace(self, job: Job, step_index: int) -> str | None:
        step = job.steps[step_index]
        span = self.span(
            "directive.publish",
            job.spec.traceparent or _root_of(job.job_id),
            job_id=job.job_id,
            tenant_id=job.spec.tenant_id,
            step_id=step.spec.step_id,
            attempt_no=step.attempt_no,
        )
        with span:
            return span.traceparent

    def temporal_interceptors(self) -> list[Any]:
        from temporalio.contrib.opentelemetry import TracingInterceptor

        return [TracingInterceptor(self._tracer)]


class _ExportedSpan:
    def __init__(self, span: Any) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent: str | None = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        self._attached: Any = None

    def __enter__(self) -> _ExportedSpan:
        """Code that is called inside and traces itself, such as Temporal's client, finds its parent here."""
        from opentelemetry import context, trace

        self._attached = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # Only the type of the error: its text may contain data of a tenant.
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, getattr(error, "code", None) or type(error).__name__))
        self._span.end()
        if self._attached is not None:
            from opentelemetry import context

            context.detach(self._attached)

    def set(self, name: str, value: Attribute) -> None:
        self._span.set_attribute(f"lucius.{name}", value)


def _context_maker() -> Callable[[str | None], Any]:
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    def context_of(traceparent: str | None) -> Any:
        match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
        if match is None:
            return Context()
        trace_id, span_id, flags = (int(part, 16) for part in match.groups())
        parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags & 1))
        return set_span_in_context(NonRecordingSpan(parent), Context())

    return context_of


def _named(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    return {f"lucius.{name}": value for name, value in attributes.items()}


def _root_of(job_id: str) -> str | None:
    """A job without a context of its own uses its id as the trace id, which has the same length."""
    try:
        text = UUID(job_id).hex
    except ValueError:
        return None
    return f"00-{text}-{text[16:]}-01"
