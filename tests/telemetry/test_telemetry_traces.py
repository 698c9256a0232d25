"""Traces: nothing without an exporter, and with one a single trace from the caller to the service."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from lucius.domain.errors import CallerError
from lucius.settings import Settings, SettingsError
from lucius.telemetry import Traces, open_traces
from lucius.telemetry.traces import ExportedTraces

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C


class Kept:
    """A span processor that keeps what ends."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None: ...

    def _on_ending(self, span: Any) -> None: ...

    def on_end(self, span: Any) -> None:
        self.spans.append(span)

    def shutdown(self) -> None: ...

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


def test_without_an_exporter_there_is_one_span_that_does_nothing(drive: Callable[..., Any]) -> None:
    traces = open_traces(Settings())
    assert type(traces) is Traces
    assert not traces.enabled
    with traces.span("command.submit", TRACEPARENT, tenant_id="acme") as span:
        span.set("job_id", "x")
        assert span.traceparent is None
        assert span is traces.span("callback.ack")
    assert traces.trace(drive().accept().job, 0) is None, "the directive then carries the job's own"


def test_a_missing_library_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"\.\[otel\]"):
        open_traces(Settings(otlp_endpoint="http://127.0.0.1:4318"))


async def test_spans_join_the_callers_trace_and_go_on_into_the_directive(drive: Callable[..., Any]) -> None:
    kept = Kept()
    async with ExportedTraces(kept) as traces:
        with traces.span("command.submit", TRACEPARENT, tenant_id="acme") as submitted:
            assert submitted.traceparent is not None
        job = drive(traceparent=submitted.traceparent).accept().job
        directive = traces.trace(job, 0)
        with traces.span("callback.result", directive) as callback:
            callback.set("outcome", "APPLIED")
    submit, publish, result = kept.spans
    assert [span.name for span in kept.spans] == ["command.submit", "directive.publish", "callback.result"]
    assert {span.context.trace_id for span in kept.spans} == {TRACE_ID}
    assert submit.parent.span_id == 0xB7AD6B7169203331
    assert publish.parent.span_id == submit.context.span_id
    assert result.parent.span_id == publish.context.span_id
    assert publish.attributes["lucius.job_id"] == job.job_id
    assert publish.attributes["lucius.attempt_no"] == 1
    assert result.attributes["lucius.outcome"] == "APPLIED"


async def test_a_job_without_a_context_has_one_trace_of_its_own(drive: Callable[..., Any]) -> None:
    kept = Kept()
    traces = ExportedTraces(kept)
    job = drive(traceparent=None).accept().job
    assert traces.trace(job, 0)[3:35] == traces.trace(job, 0)[3:35] == job.job_id.replace("-", "")  # type: ignore[index]


@pytest.mark.parametrize(
    "traceparent", [None, "", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "ff" + TRACEPARENT[2:]]
)
def test_a_context_that_is_none_begins_a_new_trace(traceparent: str | None) -> None:
    kept = Kept()
    with ExportedTraces(kept).span("command.submit", traceparent):
        pass
    assert kept.spans[0].parent is None


def test_a_caller_who_does_not_sample_is_heard() -> None:
    kept = Kept()
    with ExportedTraces(kept).span("command.submit", TRACEPARENT[:-2] + "00") as span:
        assert span.traceparent is not None
        assert span.traceparent.endswith("-00")
    assert kept.spans == []


def test_a_failed_span_tells_the_code_and_not_the_text() -> None:
    kept = Kept()
    with pytest.raises(CallerError), ExportedTraces(kept).span("command.submit"):
        raise CallerError.of("PAYLOAD_INVALID", "the patient's name is too long")
    status = kept.spans[0].status
    assert (status.status_code.name, status.description) == ("ERROR", "PAYLOAD_INVALID")
    assert kept.spans[0].events == ()


@pytest.fixture
async def collector() -> AsyncIterator[tuple[str, list[tuple[str, int]]]]:
    got: list[tuple[str, int]] = []

    async def take(request: web.Request) -> web.Response:
        got.append((request.path, len(await request.read())))
        return web.Response(body=b"", content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", got
    await runner.cleanup()


async def test_spans_reach_a_real_collector_before_the_process_ends(
    collector: tuple[str, list[tuple[str, int]]],
) -> None:
    url, got = collector
    async with open_traces(Settings(otlp_endpoint=url)) as traces:
        assert traces.enabled
        with traces.span("command.submit"):
            pass
    assert [path for path, _ in got] == ["/v1/traces"]
    assert got[0][1] > 0
