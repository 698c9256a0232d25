"""Which calls are made again, which are not, and what is raised in the end: of the blocking and the async client."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.conftest import Invoke
from tests.client.faulty_server import Answer, FaultyServer

from lucius.client import (
    ClientError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    Refused,
    Unauthenticated,
    Unavailable,
    Unreachable,
    WaitTimedOut,
)

COMMAND: dict[str, Any] = {
    "tenant_id": "acme",
    "request_type": "OCR",
    "input_ref": "https://files.example/in.pdf",
    "output_ref": "https://files.example/out.txt",
    "payload": {"language": "en"},
}
TAKEN = Answer(202, {"jobId": "j1", "status": "QUEUED"})
HANGS_UP = Answer(0)
AWAY = Answer(503, {"code": "UNAVAILABLE", "detail": "the ledger is away"})
PROXY_ERROR = Answer(502, b"<html>")
TOO_SLOW = Answer(408, {"code": "REQUEST_TIMEOUT"})
BUSY = Answer(429, {"code": "RATE_LIMITED", "detail": "slowly"}, {"Retry-After": "1"})


@pytest.mark.parametrize("fault", [HANGS_UP, AWAY, PROXY_ERROR, BUSY])
def test_submit_is_sent_again_as_the_same_job(server: FaultyServer, invoke: Invoke, fault: Answer) -> None:
    server.on("POST /v1/commands", fault, TAKEN)
    assert invoke("submit", **COMMAND).job_id == "j1"
    first, second = server.calls("POST /v1/commands")
    assert first.body == second.body
    assert len(first.body["idempotency_key"]) >= 32
    assert first.headers["Authorization"] == "Bearer key"


def test_each_submit_has_a_key_of_its_own_unless_it_is_given_one(server: FaultyServer, invoke: Invoke) -> None:
    server.on("POST /v1/commands", TAKEN)
    for key in (None, None, "mine"):
        invoke("submit", **COMMAND, idempotency_key=key)
    keys = [one.body["idempotency_key"] for one in server.received]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


@pytest.mark.parametrize("fault", [HANGS_UP, PROXY_ERROR])
def test_what_must_not_happen_twice_is_not_sent_again_if_it_may_have_arrived(
    server: FaultyServer, invoke: Invoke, fault: Answer
) -> None:
    server.on("POST /v1/batches/1:cancel", fault, TAKEN)
    with pytest.raises(ClientError) as raised:
        invoke("batches.cancel", 1)
    assert raised.value.may_have_arrived
    assert len(server.received) == 1


@pytest.mark.parametrize("fault", [HANGS_UP, PROXY_ERROR])
def test_an_operation_on_a_job_is_sent_again_under_its_key(server: FaultyServer, invoke: Invoke, fault: Answer) -> None:
    server.on("POST /v1/jobs/j1:redrive", fault, TAKEN)
    assert invoke("redrive", "j1").status == "QUEUED"
    keys = [one.headers["Idempotency-Key"] for one in server.received]
    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.parametrize("fault", [AWAY, BUSY, TOO_SLOW])
def test_what_must_not_happen_twice_is_sent_again_if_it_cannot_have_happened(
    server: FaultyServer, invoke: Invoke, fault: Answer
) -> None:
    server.on("POST /v1/jobs/j1:redrive", fault, TAKEN)
    assert invoke("redrive", "j1").status == "QUEUED"


def test_a_client_without_patience_makes_each_call_once(server: FaultyServer, invoke: Invoke) -> None:
    server.on("GET /v1/jobs/j1", BUSY)
    with pytest.raises(RateLimited) as raised:
        invoke("get", "j1", patience_seconds=0.0)
    assert raised.value.retry_after_seconds == 1.0
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid), (401, Unauthenticated), (403, Forbidden), (404, NotFound), (409, Conflict), (413, Refused),
        (422, Invalid), (429, RateLimited), (500, Unavailable), (503, Unavailable),
    ],
)  # fmt: skip
def test_a_problem_is_raised_with_all_that_it_says(
    server: FaultyServer, invoke: Invoke, status: int, kind: type[ClientError]
) -> None:
    faults = [{"code": "PAYLOAD_INVALID", "pointer": "/payload/x", "detail": "is missing"}]
    problem = {"code": "THE_CODE", "detail": "the reason", "correlation_id": "c-7", "errors": faults}
    server.on("GET /v1/jobs/j1", Answer(status, problem))
    with pytest.raises(ClientError) as raised:
        invoke("get", "j1", patience_seconds=0.0)
    error = raised.value
    assert type(error) is kind
    assert (error.code, error.message, error.correlation_id, error.status) == ("THE_CODE", "the reason", "c-7", status)
    assert [(one.pointer, one.message) for one in error.faults] == [("/payload/x", "is missing")]
    assert str(error) == "THE_CODE: the reason"


def test_a_refusal_is_not_sent_again(server: FaultyServer, invoke: Invoke) -> None:
    server.on("POST /v1/commands", Answer(422, {"code": "PAYLOAD_INVALID"}))
    with pytest.raises(Invalid):
        invoke("submit", **COMMAND)
    assert len(server.received) == 1


def test_wait_outlasts_an_outage_and_a_server_that_holds_no_calls_open(server: FaultyServer, invoke: Invoke) -> None:
    saturated = Answer(429, {"code": "WAITS_SATURATED"}, {"Retry-After": "5"})
    going, ended = (Answer(200, {"jobId": "j1", "status": status}) for status in ("IN_PROGRESS", "SUCCEEDED"))
    server.on("GET /v1/jobs/j1", saturated, going, HANGS_UP, AWAY, ended)
    assert invoke("wait", "j1", timeout_seconds=60.0).succeeded
    assert ["wait_seconds" in one.query for one in server.received] == [True, False, True, True, True]


def test_wait_ends_at_its_deadline(server: FaultyServer, invoke: Invoke) -> None:
    server.on("GET /v1/jobs/j1", Answer(200, {"jobId": "j1", "status": "IN_PROGRESS"}))
    with pytest.raises(WaitTimedOut, match="still IN_PROGRESS") as raised:
        invoke("wait", "j1", timeout_seconds=0.3)
    assert raised.value.latest["status"] == "IN_PROGRESS"


def test_wait_for_a_server_that_stays_away_ends_at_its_deadline(invoke: Invoke, server: FaultyServer) -> None:
    server.on("GET /v1/jobs/j1", HANGS_UP)
    with pytest.raises(Unreachable):
        invoke("wait", "j1", timeout_seconds=0.5)
