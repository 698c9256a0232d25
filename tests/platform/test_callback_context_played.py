"""What the kit sends with every callback: the correlation id and the trace, status and timestamps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.platform.played import PlayedOrchestrator, serve_until, service_of, settings_for

from lucius.platform import Directive, Workspace
from lucius.platform.idempotency_store import IdempotencyStore
from lucius.platform.sqlite_store import SqliteStore
from lucius.platform.workspace_store import WorkspaceStore

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTEXT = {"correlation_id": "c-1", "traceparent": TRACEPARENT}


def is_now(text: str) -> bool:
    moment = datetime.fromisoformat(text)
    return moment.tzinfo is not None and abs(datetime.now(UTC) - moment) < timedelta(minutes=1)


async def test_every_callback_has_the_correlation_id_and_the_trace(played: PlayedOrchestrator) -> None:
    async def work(directive: Directive, workspace: Workspace) -> None:
        while not played.of_kind("HEARTBEAT", directive.job_id):
            await asyncio.sleep(0.01)

    played.send(*(played.directive(number, lease_seconds=0.3, **CONTEXT) for number in range(1, 4)))
    await serve_until(service_of(work), settings_for(played), lambda: len(played.results()) == 3)
    for kind in ("ACK", "HEARTBEAT", "RESULT"):
        for call in played.of_kind(kind):
            assert {name: call.body[name] for name in CONTEXT} == CONTEXT, f"{kind}, in a batch of {call.batch}"
    ack, beat, result = (played.of_kind(kind)[0].body for kind in ("ACK", "HEARTBEAT", "RESULT"))
    assert ack["status"] == "ACKED"
    assert is_now(ack["acked_at"])
    assert is_now(beat["sent_at"])
    assert is_now(result["completed_at"])


async def test_failure_that_replaces_a_refused_result_has_them_too(played: PlayedOrchestrator) -> None:
    played.faults["RESULT"] = [(413, {"code": "BODY_TOO_LARGE"})]
    played.send(played.directive(1, **CONTEXT))
    service = service_of(lambda directive, workspace: None)
    await serve_until(service, settings_for(played), lambda: len(played.results()) == 2)
    refused, failed = played.results()
    assert failed["error"]["code"] == "RESULT_REFUSED"
    kept = ("completed_at", "correlation_id", "traceparent")
    assert [failed[name] for name in kept] == [refused[name] for name in kept]


@pytest.mark.parametrize("kind", [SqliteStore, WorkspaceStore])
async def test_interrupted_work_is_reported_with_them_after_a_restart(
    played: PlayedOrchestrator, tmp_path: Path, kind: Any
) -> None:
    directive = Directive.read(played.directive(1, **CONTEXT))
    store: IdempotencyStore = kind(tmp_path / "state")
    assert await store.open() == []
    await store.begin(directive)
    await store.close()
    again: IdempotencyStore = kind(tmp_path / "state")
    (owed,) = await again.open()
    await again.close()
    assert owed.result["error"]["code"] == "SERVICE_INTERRUPTED"
    assert {name: owed.result[name] for name in CONTEXT} == CONTEXT
