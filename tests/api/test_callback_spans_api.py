"""Spans of callbacks at a real collector: each item of a batch is below the context that it brings itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.api.conftest import CALLBACK_KEYS, IDS, KEY, Api, new_client

from lucius.bootstrap import open_app
from lucius.settings import Settings
from lucius.testing.samples import ShiftedClock

TRACES = ("0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736")
PARENTS = ("b7ad6b7169203331", "00f067aa0ba902b7")
CONTEXTS = tuple(f"00-{trace}-{parent}-01" for trace, parent in zip(TRACES, PARENTS, strict=True))

Collector = tuple[str, list[Any]]


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    spans: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        spans.extend(span for group in sent.resource_spans for scope in group.scope_spans for span in scope.spans)
        return web.Response(body=b"", content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", spans
    await runner.cleanup()


def shown(span: Any) -> tuple[str, str, str, dict[str, Any]]:
    values = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
    return span.name, span.trace_id.hex(), span.parent_span_id.hex(), values


async def test_items_of_a_batch_have_spans_below_their_own_contexts(collector: Collector, tmp_path: Path) -> None:
    url, spans = collector
    settings = Settings(
        data=str(tmp_path / "data"), api_key=KEY, callback_keys=CALLBACK_KEYS, otlp_endpoint=url,
        ledger="memory", bus="memory",
    )  # fmt: skip
    clock = ShiftedClock()
    async with open_app(settings, clock=clock) as context, new_client(context, KEY) as client:
        api = Api(context, client, clock)
        jobs = [await api.accepted(correlation_id=f"c-{number}") for number in range(3)]
        taken = [await api.take() for _ in jobs]
        directives = sorted(taken, key=lambda one: jobs.index(one["jobId"]))
        items: list[dict[str, Any]] = [
            {name: one[name] for name in (*IDS, "callback_token")} | {"type": "ACK", "correlation_id": f"c-{number}"}
            for number, one in enumerate(directives)
        ]
        items[0]["traceparent"], items[1]["traceparent"] = CONTEXTS
        items.append({**items[0], "callback_token": "forged"})
        answer = await client.post("/v1/callbacks:batch", json={"callbacks": items})
        outcomes = [one.get("outcome") or one["code"] for one in answer.json()["outcomes"]]
        assert outcomes == [*["APPLIED"] * 3, "UNAUTHENTICATED"]
        assert (await api.result(directives[0], traceparent=CONTEXTS[0])).status_code == 200
    told = {"lucius.step_id": "ocr", "lucius.attempt_no": 1, "lucius.outcome": "APPLIED"}
    first, second, third, result = [shown(span) for span in spans if span.name.startswith("callback.")]
    assert first == ("callback.ack", TRACES[0], PARENTS[0], {**told, "lucius.job_id": jobs[0]})
    assert second == ("callback.ack", TRACES[1], PARENTS[1], {**told, "lucius.job_id": jobs[1]})
    assert (third[0], third[2], third[3]) == ("callback.ack", "", {**told, "lucius.job_id": jobs[2]})
    assert third[1] not in TRACES
    assert result == ("callback.result", TRACES[0], PARENTS[0], {**told, "lucius.job_id": jobs[0]})
