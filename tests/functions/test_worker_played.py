"""The worker against a server with faults: what it takes, runs, renews and answers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from typing import Any

import pytest
from tests.functions.played_server import API_KEY, Fault, PlayedServer, job, served, until

from lucius.functions import FunctionWorker, Throttled


class Calls:
    """A worker with functions of each kind, and how often each number was worked on."""

    def __init__(self) -> None:
        self.worker = FunctionWorker("played")
        self.seen: Counter[int] = Counter()
        self.result_without_waiting = self.at_once_max = 0
        self.go_on = asyncio.Event()
        self._lock = threading.Lock()
        self.worker.function("Work")(self.work)
        self.worker.function("Work-Thread")(self.work_in_thread)
        self.worker.function("Held")(self.held)
        self.worker.function("Secret")(self.secret)

    async def work(self, n: int) -> dict[str, Any]:
        self.seen[n] += 1
        return {"n": n}

    def work_in_thread(self, n: int) -> dict[str, Any]:
        with self._lock:
            self.seen[n] += 1
        time.sleep(0.005)
        return {"n": n}

    async def held(self, n: int) -> dict[str, Any]:
        self.seen[n] += 1
        self.result_without_waiting += 1
        self.at_once_max = max(self.result_without_waiting, self.at_once_max)
        try:
            await self.go_on.wait()
        finally:
            self.result_without_waiting -= 1
        return {"n": n}

    async def secret(self, n: int, password: str) -> dict[str, Any]:
        self.seen[n] += 1
        if n == 2:
            raise ValueError(f"refused for {password}")
        if n == 3:
            raise Throttled(f"wait, {password}")
        return {"token": password}


@pytest.fixture
def calls() -> Calls:
    return Calls()


def quick_worker(seen: Counter[int]) -> FunctionWorker:
    worker = FunctionWorker("played")

    def work(n: int) -> dict[str, Any]:
        seen[n] += 1
        return {"n": n}

    worker.function("Work", quick=True)(work)
    return worker


async def test_jobs_are_worked_on_once_and_answered(played: PlayedServer, calls: Calls) -> None:
    played.send(*(job(n, "Work-Thread" if n % 2 else "Work", n=n) for n in range(100)))
    async with served(calls.worker, played.settings()) as serving:
        await until(lambda: len(played.applied) == 100)
    assert serving.result() == []
    assert calls.seen == Counter(range(100))
    assert len(played.results) == 100
    assert played.applied["step-5-a1"]["result"] == {"n": 5}
    assert played.applied["step-5-a1"]["correlationData"]["stepExecutionId"] == 5
    assert played.keys == {f"Bearer {API_KEY}"}
    assert played.pulls[0] == {"workerId": "played", "max": 16, "wait_seconds": 0.3}


async def test_quick_functions_are_pulled_and_answered_in_big_batches(played: PlayedServer) -> None:
    seen: Counter[int] = Counter()
    played.send(*(job(n, n=n) for n in range(1_000)))
    async with served(quick_worker(seen), played.settings()):
        await until(lambda: len(played.applied) == 1_000)
    assert seen == Counter(range(1_000))
    assert played.pulls[0]["max"] == 256
    assert len(played.batches) <= 8
    assert max(map(len, played.batches)) <= 500


async def test_faults_of_every_kind_lose_nothing_and_run_nothing_twice(played: PlayedServer, calls: Calls) -> None:
    played.faults["PULL"] = [Fault(500), Fault(), Fault(503, headers={"Retry-After": "0"}), Fault(200, body={"no": 1})]
    played.faults["RESULTS"] = [
        Fault(),
        Fault(500),
        Fault(applied=True),
        Fault(429),
        Fault(408),
        Fault(200, delay_seconds=0.3),
        Fault(200, body={"outcomes": []}),
        Fault(200, body={"outcomes": "none"}),
    ]
    played.send(*(job(n, n=n) for n in range(40)))
    async with served(calls.worker, played.settings()) as serving:
        await until(lambda: len(played.applied) == 40)
    assert serving.result() == []
    assert calls.seen == Counter(range(40))


async def test_a_lost_answer_is_asked_for_again(played: PlayedServer, calls: Calls) -> None:
    played.faults["RESULTS"] = [Fault(applied=True)]
    played.send(job(1, n=1))
    async with served(calls.worker, played.settings()):
        await until(lambda: len(played.batches) == 2)
    assert played.batches[0] == played.batches[1]
    assert calls.seen == {1: 1}


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_a_result_that_may_pass_later_is_sent_again_as_it_is(
    played: PlayedServer, calls: Calls, status: int
) -> None:
    played.faults["RESULTS"] = [Fault(status)]
    played.send(job(1, n=1))
    async with served(calls.worker, played.settings()):
        await until(lambda: played.applied)
    assert played.batches[0] == played.batches[1] == [played.applied["step-1-a1"]]
    assert played.applied["step-1-a1"]["status"] == "Success"


async def test_a_job_delivered_again_is_not_run_again_while_it_runs_or_is_unsent(
    played: PlayedServer, calls: Calls
) -> None:
    played.always["RESULTS"] = Fault(500)
    played.send(job(1, "Held", n=1), job(1, "Held", n=1))
    async with served(calls.worker, played.settings()):
        await until(lambda: calls.seen[1])
        played.send(job(1, "Held", n=1))
        await until(lambda: played.handed_out == 3)
        calls.go_on.set()
        await until(lambda: played.batches)
        played.send(job(1, "Held", n=1), job(2, n=2))
        await until(lambda: calls.seen[2])
        played.always.clear()
        await until(lambda: len(played.applied) == 2)
    assert calls.seen == {1: 1, 2: 1}


async def test_no_more_functions_run_at_once_than_allowed(played: PlayedServer, calls: Calls) -> None:
    played.send(*(job(n, "Held", n=n) for n in range(10)))
    async with served(calls.worker, played.settings(concurrency=3)):
        await until(lambda: calls.result_without_waiting == 3)
        await asyncio.sleep(0.2)
        assert played.handed_out == 3
        calls.go_on.set()
        await until(lambda: len(played.applied) == 10)
    assert calls.at_once_max == 3
    assert max(pull["max"] for pull in played.pulls) == 3


async def test_no_jobs_are_pulled_while_too_many_results_are_unsent(played: PlayedServer) -> None:
    seen: Counter[int] = Counter()
    played.always["RESULTS"] = Fault(503)
    played.send(*(job(n, n=n) for n in range(500)))
    async with served(quick_worker(seen), played.settings(pull_max=20, unsent_max=50)):
        await until(lambda: played.handed_out >= 50)
        await asyncio.sleep(0.3)
        assert played.handed_out == 60
        played.always.clear()
        await until(lambda: len(played.applied) == 500)
    assert seen == Counter(range(500))


async def test_results_leave_alone_at_once_and_together_while_a_call_is_under_way(
    played: PlayedServer, calls: Calls
) -> None:
    played.faults["RESULTS"] = [Fault(200, delay_seconds=0.6)]
    played.send(job(0, n=0))
    async with served(calls.worker, played.settings(results_max=5)):
        await until(lambda: played.batches)
        played.send(*(job(n, n=n) for n in range(1, 9)))
        await until(lambda: len(played.applied) == 9)
    assert [len(batch) for batch in played.batches] == [1, 5, 3]


async def test_locks_are_renewed_while_a_function_runs_and_after_a_failed_renewal(
    played: PlayedServer, calls: Calls
) -> None:
    played.faults["RENEW"] = [Fault(500), Fault()]
    played.send(job(1, "Held", n=1), job(2, n=2))
    async with served(calls.worker, played.settings(renew_seconds=0.2)):
        await until(lambda: len(played.renewals) >= 3)
        calls.go_on.set()
        await until(lambda: len(played.applied) == 2)
        renewed = len(played.renewals)
        await asyncio.sleep(0.5)
        assert len(played.renewals) <= renewed + 1
    assert played.renewals[-1] == ["step-1-a1"]
    assert played.renewal_tokens[-1] == ["j1.k1.token-of-1"]


async def test_a_lost_lock_is_told_and_the_function_goes_on(
    played: PlayedServer, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    played.is_renewed = False
    played.send(job(1, "Held", n=1))
    async with served(calls.worker, played.settings(renew_seconds=0.1)):
        await until(lambda: "lost the lock" in caplog.text)
        calls.go_on.set()
        await until(lambda: played.applied)
    assert played.applied["step-1-a1"]["status"] == "Success"


async def test_one_refused_result_does_not_take_others_with_it(played: PlayedServer, calls: Calls) -> None:
    """The server refuses whole calls that have the result of job 3 as a success in them."""

    def refuses(kind: str) -> Fault | None:
        if kind != "RESULTS" or not any(r["jobId"] == "step-3-a1" and r["result"] for r in played.batches[-1]):
            return None
        return Fault(422)

    played.fault = refuses  # type: ignore[method-assign]
    played.send(*(job(n, "Held", n=n) for n in range(10)))
    async with served(calls.worker, played.settings()):
        await until(lambda: calls.result_without_waiting == 10)
        calls.go_on.set()
        await until(lambda: len(played.applied) == 10)
    told = played.applied.pop("step-3-a1")
    assert (told["status"], told["error"]["type"]) == ("Failure", "ResultRefused")
    assert "422" in told["error"]["message"]
    assert {one["status"] for one in played.applied.values()} == {"Success"}


async def test_a_result_rejected_by_itself_becomes_a_failure_and_one_that_may_pass_is_sent_again(
    played: PlayedServer, calls: Calls
) -> None:
    codes = {"step-1-a1": ["VALIDATION"], "step-2-a1": ["UNAVAILABLE", "UNAVAILABLE"]}

    def verdict(result: dict[str, Any]) -> dict[str, Any]:
        left = codes.get(result["jobId"])
        return {"jobId": result["jobId"], "code": left.pop(), "detail": "no"} if left else {}

    played.verdict = verdict
    played.send(job(1, n=1), job(2, n=2))
    async with served(calls.worker, played.settings()):
        await until(lambda: len(played.applied) == 2)
    assert played.applied["step-1-a1"]["error"]["message"].endswith("its result was refused: VALIDATION no")
    assert played.applied["step-2-a1"]["status"] == "Success"
    assert len([one for one in played.results if one["jobId"] == "step-2-a1"]) == 3


@pytest.mark.parametrize("outcome", ["DUPLICATE", "STALE", "UNKNOWN"])
async def test_every_outcome_settles_a_result(played: PlayedServer, calls: Calls, outcome: str) -> None:
    played.verdict = lambda result: {"jobId": result["jobId"], "outcome": outcome}
    played.send(job(1, n=1))
    async with served(calls.worker, played.settings()) as serving:
        await until(lambda: played.batches)
    assert serving.result() == []
    assert len(played.batches) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_told_clearly_and_once(
    played: PlayedServer, calls: Calls, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    played.faults["PULL"] = [Fault(status)] * 3
    played.faults["RESULTS"] = [Fault(status)]
    played.send(job(1, n=1), job(2, "Held", n=2))
    async with served(calls.worker, played.settings()) as serving:
        await until(lambda: "gave up on" in caplog.text)
        calls.go_on.set()
        await until(lambda: played.applied)
    told = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert [("LUCIUS_API_KEY" in one.getMessage(), str(status) in one.getMessage()) for one in told] == [
        (True, True)
    ] * 2
    assert serving.result() == []
    assert API_KEY not in caplog.text


async def test_a_worker_that_may_not_wait_asks_as_told_without_waiting(played: PlayedServer, calls: Calls) -> None:
    """All calls that may be held open are in use, by other replicas perhaps: jobs can be had without waiting."""
    played.faults["PULL"] = [Fault(429, body={"code": "WAITS_SATURATED"}, headers={"Retry-After": "1"})]
    played.send(job(1, n=1))
    began = time.monotonic()
    async with served(calls.worker, played.settings()) as serving:
        await until(lambda: played.applied and len(played.pulls) >= 3)
    assert time.monotonic() - began >= 1.0, "it waited as it was told"
    assert [pull["wait_seconds"] > 0 for pull in played.pulls[:3]] == [True, False, True]
    assert serving.result() == []


async def test_messages_that_are_no_jobs_are_answered_where_they_can_be(played: PlayedServer, calls: Calls) -> None:
    played.send(
        "text", {"functionName": "Work"}, {"jobId": "step-9-a1", "correlationData": {"kind": "step"}}, job(1, n=1)
    )
    async with served(calls.worker, played.settings()):
        await until(lambda: len(played.applied) == 2)
    told = played.applied["step-9-a1"]
    assert (told["error"]["type"], told["correlationData"]) == ("JobInvalid", {"kind": "step"})


async def test_no_secret_is_in_the_log(played: PlayedServer, calls: Calls, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lucius.functions")
    played.faults["RESULTS"] = [Fault(500), Fault(422)]
    secret = "hunter2"
    played.send(*(job(n, "Secret", n=n, password=secret) for n in (1, 2, 3)))
    played.send(job(4, "Secret", n=4, Colour=secret), job(5, "Unknown", a=secret))
    async with served(calls.worker, played.settings(renew_seconds=0.05)):
        await until(lambda: len(played.applied) == 5)
    assert secret not in caplog.text
    assert API_KEY not in caplog.text
    for told in (
        "step-1-a1 Secret: Success",
        "step-2-a1 Secret: Failure (ValueError at ",
        "step-3-a1 Secret: Throttled",
    ):
        assert told in caplog.text


async def test_stopping_finishes_what_runs_and_sends_every_result(played: PlayedServer, calls: Calls) -> None:
    played.faults["RESULTS"] = [Fault(500), Fault()]
    played.send(*(job(n, "Held", n=n) for n in range(5)))
    async with served(calls.worker, played.settings(drain_seconds=30)) as serving:
        await until(lambda: calls.result_without_waiting == 5)
        asyncio.get_running_loop().call_later(0.2, calls.go_on.set)
    assert serving.result() == []
    assert len(played.applied) == 5


async def test_stopping_leaves_what_does_not_end_to_another_worker(played: PlayedServer, calls: Calls) -> None:
    played.send(job(1, "Held", n=1), job(2, n=2))
    async with served(calls.worker, played.settings(drain_seconds=0.2)) as serving:
        await until(lambda: calls.result_without_waiting == 1 and played.applied)
    assert serving.result() == ["step-1-a1"]
    assert list(played.applied) == ["step-2-a1"]
    assert calls.result_without_waiting == 0


class BrokenSource:
    """A source with defects, as one that somebody else wrote may have."""

    def __init__(self) -> None:
        self.pulls = self.answers = 0
        self.results: list[Any] = []

    async def pull(self, count_max: int, wait_seconds: float, /) -> list[Any]:
        self.pulls += 1
        if self.pulls == 1:
            raise KeyError("a defect")
        await asyncio.sleep(0.05)
        return [job(1, n=1)] if self.pulls == 2 else []

    async def renew(self, job_ids: Any, /) -> list[bool]:
        raise KeyError("a defect")

    async def answer(self, results: Any, /) -> list[Any]:
        self.answers += 1
        if self.answers == 1:
            raise KeyError("a defect")
        self.results.extend(results)
        return [{"jobId": one["jobId"], "outcome": "APPLIED"} for one in results]


async def test_a_source_with_defects_does_not_end_the_worker(played: PlayedServer, calls: Calls) -> None:
    source = BrokenSource()
    async with served(calls.worker, played.settings(renew_seconds=0.02), source=source):
        await until(lambda: source.results)
    assert [one["result"] for one in source.results] == [{"n": 1}]
    assert played.pulls == []


async def test_a_server_that_answers_empty_pulls_at_once_is_not_asked_without_end(
    played: PlayedServer, calls: Calls
) -> None:
    async with served(calls.worker, played.settings(wait_seconds=0)):
        await asyncio.sleep(0.5)
    assert 1 <= len(played.pulls) <= 6
