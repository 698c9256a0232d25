"""Traces: one span an attempt, below the directive's own, whose context goes back with the callbacks."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.platform.played import PlayedOrchestrator, serve_until, service_of, settings_for

from lucius.platform import Directive, NonRetryable, ServiceUnusable, Workspace, service
from lucius.platform.traces import ExportedTraces, Traces, open_traces

TRACE_ID, PARENT_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE_ID:032x}-{PARENT_ID:016x}-01"


def work(directive: Directive, workspace: Workspace) -> dict[str, Any]:
    if directive.job_id == "job-2":
        raise NonRetryable("BAD_INPUT", "the tenant's own words")
    return {}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()

    def opened(name: str, endpoint: str) -> Traces:
        assert endpoint == "http://127.0.0.1:4318"
        return ExportedTraces(name, SimpleSpanProcessor(exporter))

    monkeypatch.setattr(service, "open_traces", opened)
    return exporter


async def test_an_attempt_is_a_span_below_the_directives_own(
    played: PlayedOrchestrator, exporter: InMemorySpanExporter
) -> None:
    played.send(played.directive(1, traceparent=TRACEPARENT))
    settings = settings_for(played, otlp_endpoint="http://127.0.0.1:4318")
    await serve_until(service_of(work), settings, played.results)
    (span,) = exporter.get_finished_spans()
    assert span.name == "step WORK"
    assert (span.parent.trace_id, span.parent.span_id) == (TRACE_ID, PARENT_ID)
    assert span.context.trace_id == TRACE_ID
    assert span.resource.attributes["service.name"] == "lucius-platform-played"
    assert dict(span.attributes) == {
        "lucius.job_id": "job-1",
        "lucius.step_id": "work",
        "lucius.tenant_id": "acme",
        "lucius.attempt_no": 1,
        "lucius.outcome": "SUCCEEDED",
    }
    for kind in ("ACK", "RESULT"):
        (call,) = played.of_kind(kind)
        assert call.headers["traceparent"] == f"00-{TRACE_ID:032x}-{span.context.span_id:016x}-01"


async def test_a_failure_marks_its_span_without_the_tenants_words(
    played: PlayedOrchestrator, exporter: InMemorySpanExporter
) -> None:
    played.send(played.directive(2))
    settings = settings_for(played, otlp_endpoint="http://127.0.0.1:4318")
    await serve_until(service_of(work), settings, played.results)
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "NON_RETRYABLE")
    assert "the tenant's own words" not in span.to_json()


async def test_without_an_exporter_the_directives_context_is_handed_on(played: PlayedOrchestrator) -> None:
    played.send(played.directive(1, traceparent=TRACEPARENT), played.directive(3))
    await serve_until(service_of(work), settings_for(played, concurrency=1), lambda: len(played.results()) == 2)
    assert played.of_kind("RESULT", "job-1")[0].headers["traceparent"] == TRACEPARENT
    assert played.of_kind("RESULT", "job-3")[0].headers["traceparent"] is None


def test_a_missing_library_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ServiceUnusable, match=r"\.\[otel\]"):
        open_traces("ocr", "http://127.0.0.1:4318")
    assert type(open_traces("ocr", "")) is Traces


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://127.0.0.1:9/", "http://127.0.0.1:9/v1/traces"])
def test_spans_go_to_the_endpoints_path_for_traces(endpoint: str) -> None:
    traces = open_traces("ocr", endpoint)
    try:
        assert isinstance(traces, ExportedTraces)
        (processor,) = traces._provider._active_span_processor._span_processors
        assert processor.span_exporter._endpoint == "http://127.0.0.1:9/v1/traces"
    finally:
        traces.close()
