"""Calls of platform services and function workers: directives and callbacks, jobs and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucius.client.call import Call, Json, post

RENEWAL_SECONDS_MAX = 10.0
REPORT_SECONDS_MAX = 5.0


def pull_directives(service: str, count_max: int, wait_seconds: float) -> Call:
    body = {"service": service, "max": count_max, "wait_seconds": wait_seconds}
    return post("/v1/directives:pull", body, wait_seconds=wait_seconds)


def report_service(service: str) -> Call:
    """An instance is there that takes its directives from the bus."""
    return post(
        "/v1/directives:pull", {"service": service, "max": 0, "wait_seconds": 0}, answer_seconds_max=REPORT_SECONDS_MAX
    )


def report_worker(worker_id: str) -> Call:
    """An instance is there that takes its jobs from the bus."""
    return post(
        "/v1/worker-jobs:pull",
        {"workerId": worker_id, "max": 0, "wait_seconds": 0},
        answer_seconds_max=REPORT_SECONDS_MAX,
    )


def call_back(kind: str, body: Json, token: str, traceparent: str | None = None) -> Call:
    """An ACK, RESULT or HEARTBEAT. Its token is its only credential."""
    headers = {"Lucius-Callback-Token": token} | ({"traceparent": traceparent} if traceparent else {})
    return post(f"/v1/callbacks/{kind.lower()}", body, headers=headers, is_repeatable=True, sends_key=False)


def call_back_batch(callbacks: Sequence[Json]) -> Call:
    """Several callbacks, each with its `type` and its `callback_token`."""
    return post("/v1/callbacks:batch", {"callbacks": list(callbacks)}, is_repeatable=True, sends_key=False)


def pull_jobs(worker_id: str, count_max: int, wait_seconds: float) -> Call:
    body = {"workerId": worker_id, "max": count_max, "wait_seconds": wait_seconds}
    return post("/v1/worker-jobs:pull", body, wait_seconds=wait_seconds)


def renew_jobs(worker_id: str, job_ids: Sequence[str], tokens: Sequence[str | None]) -> Call:
    body = {"workerId": worker_id, "jobIds": list(job_ids), "tokens": list(tokens)}
    return post("/v1/worker-jobs:renew", body, is_repeatable=True, answer_seconds_max=RENEWAL_SECONDS_MAX)


def answer_jobs(results: Sequence[Any]) -> Call:
    return post("/v1/worker-results", {"results": list(results)}, is_repeatable=True)
