"""One message of every kind that LUCIUS publishes, and what consumers must find, as literals of the documents that
LUCIUS was specified by."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.decide import decide
from lucius.domain.directive import CallbackUrls
from lucius.domain.routing import Mode
from lucius.engines.directives import composer
from lucius.functions.bus_source import BusSource
from lucius.functions.job import success
from lucius.kit.bus import KitBus
from lucius.ports.bus import Bus, Message, Subscription
from lucius.runbooks.core import messages as runbooks
from lucius.runbooks.engine.dispatch import job_message
from lucius.testing.samples import JOB_TOKENS, ManualClock, new_job

CONSUMER_SECONDS = 90.0
WORKER = "cloud-worker-1"
RUNBOOK = ("contoso-mailbox-migration", 3, 42)
MARCH_10, MARCH_15 = 1_741_564_800_000, 1_741_996_800_000

LANE, BURST_LANE = "global-bus-p14", "global-bus-p12"
"""CRC-32 of `acme` and of `acmedoc-7`, modulo 16."""
SUBSCRIPTIONS = (
    Subscription(topic=LANE, name="ocr", where={"service": "ocr"}),
    Subscription(topic=BURST_LANE, name="ocr", where={"service": "ocr"}),
    *runbooks.SUBSCRIPTIONS,
    runbooks.worker_subscription(WORKER),
)
PLACES = {
    f"{LANE}/ocr": 1,
    f"{BURST_LANE}/ocr": 1,
    "orchestrator-events/orchestrator": 5,
    f"jobs/{WORKER}": 1,
    "results/orchestrator": 1,
}
"""Topics and subscriptions, with the number of messages there."""

DIRECTIVE_FIELDS = {
    "jobId", "tenant_id", "stepId", "protocol_id", "step_type", "attempt_no", "lease_id", "input_ref", "workspace_ref",
    "output_ref", "payload", "callback_urls", "correlation_id", "traceparent",
}  # fmt: skip
"""Of a directive, as 000 §9.1 and 001 §5.1 list them."""
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def directive(mode: Mode, doc_id: str | None) -> Message:
    clock = ManualClock()
    new = new_job(clock, steps=["ocr"], mode=mode, doc_id=doc_id, correlation_id="intake-42", traceparent=TRACE)
    job = decide(None, new.fact, clock.now(), clock).job
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    return composer(clock, signer, CallbackUrls.under("http://127.0.0.1"), lambda *_: None)(job, 0)


def job() -> Message:
    """As it is sent for a step."""
    turn, batch = SimpleNamespace(tokens=JOB_TOKENS), SimpleNamespace(id=42, runbook_name=RUNBOOK[0])
    step = SimpleNamespace(
        kind="step", id=1042, job_id="step-1042-a3", version=3, worker_id=WORKER, function_name="Start-Move",
        params_json='{"Upn":"ann@contoso.com"}',
    )  # fmt: skip
    return job_message(cast(Any, turn), cast(Any, batch), cast(Any, step))


def messages() -> list[Message]:
    """All but the result, in the order in which they are consumed."""
    return [
        directive(Mode.DEFAULT, None),
        directive(Mode.BURST, "doc-7"),
        runbooks.batch_init(*RUNBOOK, MARCH_15, 150),
        *runbooks.phase_due(*RUNBOOK, (108, "pre-notification", 7200, MARCH_10), [501, 502, 503, 504]),
        runbooks.member_change("member-added", *RUNBOOK, 505, "newuser@contoso.com"),
        runbooks.member_change("member-removed", *RUNBOOK, 503, "removeduser@contoso.com"),
        runbooks.poll_check(*RUNBOOK, "step", 1042, "start-mailbox-move", 5, 2),
        job(),
    ]


def consume(script: str, server: str) -> list[dict[str, Any]]:
    """What a program in another process prints that knows nothing of LUCIUS: a line of JSON for each message, in the
    order of `PLACES`."""
    command = [sys.executable, "-I", "-c", script, server, json.dumps(PLACES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CONSUMER_SECONDS)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def answer(bus: Bus) -> None:
    """As a function worker does that has had a job."""
    async with BusSource(WORKER, KitBus(bus)) as source:
        result = success("step-1041-a1", CORRELATION, {"complete": True}, 812)
        (answered,) = await source.answer([result | {"timestamp": "2025-03-15T00:01:02.345Z"}])
        assert answered == {"jobId": "step-1041-a1", "outcome": "RECEIVED"}


def expected_directive(mode: str, lane: int, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its description, and the fields of its body that do not depend on a key."""
    job_id, lease = "019e7044-8800-7000-8001-000000000001", "lease-00000001"
    described = {
        "id": f"{job_id}:ocr:1",
        "content_type": "application/json",
        "subject": "OCR",
        "correlation_id": "intake-42",
        "properties": {
            "mode": mode, "lane": lane, "tenant_id": "acme", "jobId": job_id, "stepId": "ocr", "attempt_no": 1,
            "lease_id": lease, "service": "ocr", "message_key": key,
        },
    }  # fmt: skip
    body = {
        "type": "DIRECTIVE", "jobId": job_id, "tenant_id": "acme", "stepId": "ocr", "protocol_id": "OCR_EMBEDDING_SIS",
        "step_type": "OCR", "service": "ocr", "last_step": True, "attempt_no": 1, "lease_id": lease,
        "ack_by": "2026-05-28T20:27:10.000Z", "lease_seconds": 900.0, "input_ref": "blob://in/contract.pdf",
        "workspace_ref": "blob://work/acme/ocr/1/", "output_ref": {"uri": "blob://out/answer.json"},
        "payload": {"pages": "1-2"}, "previous": {},
        "callback_urls": {
            "ack": "http://127.0.0.1/v1/callbacks/ack",
            "result": "http://127.0.0.1/v1/callbacks/result",
            "heartbeat": "http://127.0.0.1/v1/callbacks/heartbeat",
        },
        "mode": mode, "lane": lane, "routing_key_used": key, "correlation_id": "intake-42", "traceparent": TRACE,
    }  # fmt: skip
    return described, body


def expected_event(message_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    message_type = fields["messageType"]
    return {
        "id": message_id,
        "content_type": "application/json",
        "subject": message_type,
        "correlation_id": None,
        "properties": {"MessageType": message_type, "ContentType": "application/json"},
        "body": fields,
    }


_OF_THE_RUNBOOK = {"runbookName": "contoso-mailbox-migration", "runbookVersion": 3, "batchId": 42}
EVENTS = [
    expected_event("batch-init-42-v3", {
        "messageType": "batch-init", **_OF_THE_RUNBOOK, "batchStartTime": "2025-03-15T00:00:00Z", "memberCount": 150,
    }),
    expected_event("phase-due-108-0", {
        "messageType": "phase-due", **_OF_THE_RUNBOOK, "phaseExecutionId": 108, "phaseName": "pre-notification",
        "offsetMinutes": 7200, "dueAt": "2025-03-10T00:00:00Z", "memberIds": [501, 502, 503, 504],
    }),
    expected_event("member-added-505", {
        "messageType": "member-added", **_OF_THE_RUNBOOK, "batchMemberId": 505, "memberKey": "newuser@contoso.com",
    }),
    expected_event("member-removed-503", {
        "messageType": "member-removed", **_OF_THE_RUNBOOK, "batchMemberId": 503,
        "memberKey": "removeduser@contoso.com",
    }),
    # `kind` is LUCIUS's own; all else of these five is in 004, "Message Schemas".
    expected_event("poll-check-step-1042-2-5", {
        "messageType": "poll-check", **_OF_THE_RUNBOOK, "stepExecutionId": 1042, "stepName": "start-mailbox-move",
        "pollCount": 5, "kind": "step",
    }),
]  # fmt: skip
CORRELATION = {
    "kind": "step",
    "stepExecutionId": 1042,
    "isInitStep": False,
    "runbookName": "contoso-mailbox-migration",
    "runbookVersion": 3,
    "token": JOB_TOKENS.mint("step-1042-a3", WORKER, 42),
}
JOB = {
    "id": "step-1042-a3",
    "content_type": "application/json",
    "subject": None,
    "correlation_id": None,
    "properties": {"WorkerId": "cloud-worker-1"},
    "body": {
        "jobId": "step-1042-a3", "batchId": 42, "workerId": "cloud-worker-1", "functionName": "Start-Move",
        "parameters": {"Upn": "ann@contoso.com"}, "correlationData": CORRELATION,
    },
}  # fmt: skip
RESULT = {
    "id": "result-step-1041-a1",
    "content_type": "application/json",
    "subject": None,
    "correlation_id": None,
    "properties": {},
    "body": {
        "jobId": "step-1041-a1", "status": "Success", "resultType": "Object", "result": {"complete": True},
        "error": None, "durationMs": 812, "timestamp": "2025-03-15T00:01:02.345Z", "correlationData": CORRELATION,
    },
}  # fmt: skip


def assert_contract(seen: Sequence[dict[str, Any]]) -> None:
    """What was consumed is what the documents say."""
    found = [one | {"body": json.loads(one["body"])} for one in seen]
    directives = (expected_directive("DEFAULT", 14, "acme"), expected_directive("BURST", 12, "acmedoc-7"))
    for one, (described, body) in zip(found[:2], directives, strict=True):
        given = one.pop("body")
        assert given.keys() >= DIRECTIVE_FIELDS
        assert given.pop("callback_token").startswith("v1.k1.")
        assert given == body
        assert one == described
    assert found[2:7] == EVENTS
    assert found[7:] == [JOB, RESULT]
