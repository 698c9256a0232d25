"""What callbacks say besides what counts: correlation id, trace, status and timestamps, alone and in a batch."""

from __future__ import annotations

from typing import Any

import pytest

ACKED_AT, COMPLETED_AT = "2026-01-31T08:15:31.250Z", "2026-01-31T08:15:40.000Z"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def told(api: Any, job_id: str, type_: str) -> dict[str, Any]:
    return next(event for event in await api.events(job_id) if event["type"] == type_)


async def test_status_and_timestamps_of_callbacks_are_in_the_trail(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted(correlation_id="c-1")
    directive = await api.take()
    context = {"correlation_id": "c-1", "traceparent": TRACEPARENT}
    assert (await api.ack(directive, status="ACKED", acked_at=ACKED_AT, **context)).status_code == 200
    assert (await api.heartbeat(directive, progress=0.5, sent_at=ACKED_AT, **context)).status_code == 200
    assert (await api.result(directive, completed_at=COMPLETED_AT, **context)).status_code == 200
    ack, result = await told(api, job_id, "ACK"), await told(api, job_id, "RESULT")
    assert (ack["status"], ack["acked_at"], result["completed_at"]) == ("ACKED", ACKED_AT, COMPLETED_AT)
    assert "correlation_id" not in ack, "it is the job's own"


async def test_correlation_id_that_is_not_the_jobs_is_in_the_trail(api: Any) -> None:
    job_id = await api.accepted(correlation_id="c-1")
    directive = await api.take()
    items = [
        {"type": "ACK", "correlation_id": "c-2"},
        {"type": "HEARTBEAT", "progress": 0.5, "correlation_id": "c-2"},
        {"type": "RESULT", "status": "FAILED", "failure_class": "NON_RETRYABLE", "correlation_id": "c-2"},
    ]
    ids = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
    token = {"callback_token": directive["callback_token"], "traceparent": TRACEPARENT}
    body = {"callbacks": [{**item, **ids, **token} for item in items]}
    outcomes = (await api.client.post("/v1/callbacks:batch", json=body)).json()["outcomes"]
    assert [one["outcome"] for one in outcomes] == ["APPLIED"] * 3
    for type_ in ("ACK", "HEARTBEAT", "RESULT"):
        assert (await told(api, job_id, type_))["correlation_id"] == "c-2"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("acked_at", "yesterday"),
        ("acked_at", "2026-01-31T08:15:31"),
        ("correlation_id", ""),
        ("correlation_id", "\u00e9"),
    ],
)
async def test_faults_of_what_an_ack_says_are_told_by_their_place(api: Any, field: str, value: str) -> None:
    await api.accepted()
    directive = await api.take()
    api.assert_problem(await api.ack(directive, **{field: value}), 422, "ENVELOPE_INVALID", f"/{field}")
