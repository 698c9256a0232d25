"""Workers over HTTP: taking jobs, keeping them, and bringing back what came of them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.api.conftest import KEY
from tests.api.runbook_client import PLAIN, QUICK, WORKER, RunbookCaller, fail, succeed

from lucius.api.app import create_front


@pytest.fixture
async def caller(open_api: Any) -> RunbookCaller:
    return RunbookCaller(await open_api(**QUICK))


@pytest.fixture
async def busy(caller: RunbookCaller) -> RunbookCaller:
    """With a batch of three members, whose first jobs wait."""
    await caller.publish(PLAIN)
    await caller.create("ann", "bob", "carl", runbook="plain")
    return caller


async def test_pull_hands_out_jobs_as_the_contract_has_them(busy: RunbookCaller) -> None:
    (job, *_) = await busy.jobs(3)
    assert set(job) == {"jobId", "batchId", "workerId", "functionName", "parameters", "correlationData"}
    assert (job["workerId"], job["functionName"]) == (WORKER, "A")
    assert job["parameters"] == {"Upn": "ann"}
    data = job["correlationData"]
    assert set(data) == {"kind", "stepExecutionId", "isInitStep", "runbookName", "runbookVersion", "token"}
    assert job["jobId"] == f"step-{data['stepExecutionId']}-a1"
    assert await busy.pull(wait_seconds=0) == [], "those that were pulled are locked"


async def test_pull_gives_no_more_than_asked_for(busy: RunbookCaller) -> None:
    await busy.until(1, lambda batch: bool(batch["phases"]["dispatched"]))
    first = await busy.jobs(1)
    rest = await busy.jobs(2)
    assert len({job["jobId"] for job in [*first, *rest]}) == 3


async def test_pull_waits_for_the_first_job(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    began = time.monotonic()
    assert await caller.pull(wait_seconds=0.3) == []
    assert time.monotonic() - began >= 0.25


async def test_pull_of_an_unknown_worker_names_those_that_are_known(caller: RunbookCaller) -> None:
    body = {"workerId": "nobody", "wait_seconds": 10}
    began = time.monotonic()
    answer = await caller.client.post("/v1/worker-jobs:pull", json=body)
    problem = caller.api.assert_problem(answer, 422, "ENVELOPE_INVALID", "/workerId")
    assert "publish a runbook first" in problem["detail"]
    await caller.publish(PLAIN)
    answer = await caller.client.post("/v1/worker-jobs:pull", json=body)
    assert WORKER in caller.api.assert_problem(answer, 422, "ENVELOPE_INVALID", "/workerId")["detail"]
    assert time.monotonic() - began < 9, "it is said at once, not after the wait"


WRONG_BODIES = [
    ("pull", {"workerId": ""}, "/workerId"),
    ("pull", {"workerId": "x" * 129}, "/workerId"),
    ("pull", {"workerId": "a\0b"}, "/workerId"),
    ("pull", {"workerId": WORKER, "max": -1}, "/max"),
    ("pull", {"workerId": WORKER, "max": 257}, "/max"),
    ("pull", {"workerId": WORKER, "wait_seconds": -1}, "/wait_seconds"),
    ("pull", {"workerId": WORKER, "wait_seconds": 61}, "/wait_seconds"),
    ("pull", {"workerId": WORKER, "more": 1}, ""),
    ("pull", {}, ""),
    ("renew", {"workerId": WORKER, "jobIds": []}, "/jobIds"),
    ("renew", {"workerId": WORKER, "jobIds": ["x"] * 257}, "/jobIds"),
    ("renew", {"workerId": WORKER, "jobIds": ["x", "y" * 101]}, "/jobIds/1"),
    ("renew", {"workerId": WORKER}, ""),
]


async def test_bodies_out_of_their_limits_are_refused(caller: RunbookCaller) -> None:
    for path, body, pointer in WRONG_BODIES:
        answer = await caller.client.post(f"/v1/worker-jobs:{path}", json=body)
        caller.api.assert_problem(answer, 422, "ENVELOPE_INVALID", pointer)


async def test_a_job_is_not_locked_for_a_worker_that_has_gone(busy: RunbookCaller) -> None:
    await busy.until(1, lambda batch: "3 steps are with workers" in " ".join(batch["waiting_for"]))
    body = json.dumps({"workerId": WORKER, "max": 3, "wait_seconds": 20}).encode()
    heard = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(heard, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {KEY}".encode()), (b"content-type", b"application/json")]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/worker-jobs:pull", "headers": headers, "query_string": b"",
    }  # fmt: skip
    await create_front(busy.api.context)(scope, receive, send)
    assert sent[-1]["body"] == b'{"jobs":[]}'
    assert len(await busy.pull(wait_seconds=0)) == 3, "they were locked for somebody who had gone"


async def test_renew_says_for_each_job_whether_it_is_still_held(busy: RunbookCaller) -> None:
    jobs = await busy.jobs(3)
    await busy.results(succeed(jobs[0]))
    wanted = [job["jobId"] for job in jobs] + ["step-999-a1"]
    tokens = [job["correlationData"]["token"] for job in jobs] + [None]
    answer = await busy.post("/v1/worker-jobs:renew", {"workerId": WORKER, "jobIds": wanted, "tokens": tokens})
    assert answer == {"renewed": [False, True, True, False]}
    answer_without = await busy.post("/v1/worker-jobs:renew", {"jobIds": wanted, "tokens": tokens})
    assert answer_without == answer, "the worker can be looked up"


async def test_a_lock_that_ran_out_hands_the_job_out_again(open_api: Any) -> None:
    caller = RunbookCaller(await open_api(**QUICK, worker_lock_seconds=0.2))
    await caller.publish(PLAIN)
    await caller.create("ann", runbook="plain")
    (first,) = await caller.jobs(1)
    (again,) = await caller.jobs(1)
    assert again == first


# --- Results ---------------------------------------------------------------------------------------------------------


async def test_results_are_answered_one_by_one_in_their_order(busy: RunbookCaller) -> None:
    ann, bob, carl = await busy.jobs(3)
    outcomes = await busy.results(
        succeed(ann),
        {"status": "Success"},
        succeed(ann),
        {"jobId": bob["jobId"], "status": "Perhaps"},
        fail(bob),
        "nonsense",
        {"jobId": "step-77-a1", "status": "Success"},
        succeed(carl) | {"jobId": carl["jobId"].replace("-a1", "-a9")},
        {"jobId": 5, "status": "Success"},
    )
    assert [one.get("outcome") or one["code"] for one in outcomes] == [
        "APPLIED", "ENVELOPE_INVALID", "DUPLICATE", "ENVELOPE_INVALID", "APPLIED", "ENVELOPE_INVALID", "UNKNOWN",
        "UNAUTHENTICATED", "ENVELOPE_INVALID",
    ]  # fmt: skip
    assert [one["jobId"] for one in outcomes[:5]] == [
        ann["jobId"], None, ann["jobId"], bob["jobId"], bob["jobId"],
    ]  # fmt: skip
    assert "Success or Failure" in outcomes[3]["detail"]


async def test_results_are_read_in_any_letter_case(busy: RunbookCaller) -> None:
    ann, bob, carl = await busy.jobs(3)
    outcomes = await busy.results(
        {"JOBID": ann["jobId"], "Status": "SUCCESS", "RESULT": {"Guid": 1}, "CORRELATIONDATA": ann["correlationData"]},
        fail(bob) | {"status": "failure", "error": {"MESSAGE": "no such mailbox"}},
        fail(carl) | {"error": "in one word"},
    )
    assert [one["outcome"] for one in outcomes] == ["APPLIED"] * 3
    errors = {one["member"]: one["steps"][0]["error"] for one in await busy.members(1)}
    assert errors == {"ann": None, "bob": "no such mailbox", "carl": "in one word"}


async def test_a_result_settles_its_job(open_api: Any) -> None:
    caller = RunbookCaller(await open_api(**QUICK, worker_lock_seconds=0.2))
    await caller.publish(PLAIN)
    await caller.create("ann", runbook="plain")
    (first,) = await caller.work(1)
    (second,) = await caller.jobs(1)
    assert (first["functionName"], second["functionName"]) == ("A", "B")


WRONG_COUNTS = [[], [{"jobId": "x", "status": "Success"}] * 501]


async def test_too_few_and_too_many_results_are_refused(caller: RunbookCaller) -> None:
    for results in WRONG_COUNTS:
        answer = await caller.client.post("/v1/worker-results", json={"results": results})
        caller.api.assert_problem(answer, 422, "ENVELOPE_INVALID", "/results")


async def test_results_that_are_hostile_change_nothing_else(busy: RunbookCaller) -> None:
    ann, bob, carl = await busy.jobs(3)
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    outcomes = await busy.results(
        succeed(ann) | {"result": deep},
        fail(bob, "a\0b" * 5_000),
        succeed(carl) | {"result": {"guid": 10**30, "n": "a\0b"}},
    )
    assert [one.get("outcome") or one["code"] for one in outcomes] == ["ENVELOPE_INVALID", "APPLIED", "APPLIED"]
    errors = {one["member"]: one["steps"][0]["error"] for one in await busy.members(1)}
    assert len(errors["bob"]) == 4_000
    assert "\0" not in errors["bob"], "PostgreSQL could not keep it"


UNREADABLE = [b"", b"{", b'{"results": 1}', b'{"results": [], "more": 1}', b"[" * 50_000]


async def test_results_that_cannot_be_read_are_refused(caller: RunbookCaller) -> None:
    for body in UNREADABLE:
        answer = await caller.api.post_raw(body, "/v1/worker-results")
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["code"] in ("MALFORMED_JSON", "ENVELOPE_INVALID")


async def test_results_are_counted(busy: RunbookCaller) -> None:
    await busy.work(3)
    text = (await busy.api.look("/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("lucius_runbook_results")]
    assert 'lucius_runbook_results_total{outcome="APPLIED"} 3.0' in lines
