"""RESULTs arrive: over failures, in batches or alone, and in another form where the server will not have them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.platform.played import (
    AWAY,
    HANG_UP,
    STALE,
    Answer,
    PlayedOrchestrator,
    serve_until,
    service_of,
    settings_for,
)

from lucius.platform import Directive, Workspace, worker


def work(directive: Directive, workspace: Workspace) -> dict[str, Any]:
    return {"job": directive.job_id}


@pytest.mark.parametrize(
    "fault", [AWAY, (502, b"<html>bad gateway"), HANG_UP, (500, {"code": "INTERNAL"}), (200, b"not JSON")], ids=str
)
async def test_a_result_is_sent_again_until_it_is_answered(played: PlayedOrchestrator, fault: Answer) -> None:
    played.faults["RESULT"] = [fault] * 2
    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played), lambda: len(played.results()) == 3)
    first, second, third = played.results()
    assert first == second == third
    assert third["artifacts"] == {"job": "job-1"}


async def test_a_result_is_sent_again_no_sooner_than_the_server_asks(played: PlayedOrchestrator) -> None:
    played.faults["RESULT"] = [(429, {"code": "RATE_LIMITED"}, {"Retry-After": "2"})]
    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played), lambda: len(played.results()) == 2)
    first, second = played.of_kind("RESULT")
    assert 2.0 <= second.at - first.at < 20.0


@pytest.mark.parametrize(
    "answer", [(413, {"code": "BODY_TOO_LARGE", "detail": "artifacts"}), (422, {"code": "ENVELOPE_INVALID"})], ids=str
)
async def test_a_result_the_server_will_not_have_becomes_a_failure(played: PlayedOrchestrator, answer: Answer) -> None:
    played.faults["RESULT"] = [answer]
    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played), lambda: len(played.results()) == 2)
    result = played.results()[1]
    assert (result["status"], result["failure_class"]) == ("FAILED", "NON_RETRYABLE")
    assert result["error"]["code"] == "RESULT_REFUSED"
    assert answer[1]["code"] in result["error"]["message"]


async def test_a_result_that_came_too_late_is_not_sent_again(played: PlayedOrchestrator) -> None:
    played.faults["RESULT"] = [STALE]
    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played), played.results)
    played.send(played.directive(2))
    await serve_until(service_of(work), settings_for(played), lambda: played.results("job-2"))
    assert len(played.results("job-1")) == 1


async def test_a_callback_that_is_alone_leaves_by_itself_and_at_once(played: PlayedOrchestrator) -> None:
    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played), played.results)
    assert "/v1/callbacks:batch" not in played.paths
    assert played.of_kind("RESULT")[0].at - played.of_kind("ACK")[0].at < 10.0


async def test_callbacks_that_gather_leave_together(played: PlayedOrchestrator) -> None:
    count = 60
    played.delays = {"ACK": 0.3, "RESULT": 0.3, "CALLBACKS:BATCH": 0.3}
    played.send(*(played.directive(number) for number in range(count)))
    settings = settings_for(played, concurrency=count)
    await serve_until(service_of(work), settings, lambda: len(played.results()) == count)
    sizes = [one.batch for one in played.calls if one.batch]
    assert max(sizes) > 10
    assert max(sizes) <= settings.batch_max
    assert len(played.of_kind("ACK")) == count
    for call in played.of_kind("RESULT"):
        assert call.body["artifacts"] == {"job": call.job}


async def test_an_eager_step_sends_ack_and_result_in_one_call(
    played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "EAGER_ACK_SECONDS", 30.0)
    played.send(played.directive(1), played.directive(2))
    settings = settings_for(played, concurrency=1)
    await serve_until(service_of(work, eager=True), settings, lambda: len(played.results()) == 2)
    for job in ("job-1", "job-2"):
        (acked,), (ended,) = played.of_kind("ACK", job), played.of_kind("RESULT", job)
        assert played.kinds(job) == ["ACK", "RESULT"]
        assert acked.headers is ended.headers
        assert ended.batch


async def test_the_ack_of_an_eager_step_does_not_wait_for_work_that_takes_long(played: PlayedOrchestrator) -> None:
    acked = threading.Event()

    def slow(directive: Directive, workspace: Workspace) -> dict[str, bool]:
        return {"acked": acked.wait(30)}

    def is_acked() -> bool:
        if played.of_kind("ACK"):
            acked.set()
        return bool(played.results())

    played.send(played.directive(1))
    await serve_until(service_of(slow, eager=True), settings_for(played), is_acked)
    (ended,) = played.of_kind("RESULT")
    assert ended.body["artifacts"] == {"acked": True}
    assert ended.batch is None


async def test_an_eager_attempt_that_is_stale_is_stopped(played: PlayedOrchestrator) -> None:
    ended = threading.Event()

    def patient(directive: Directive, workspace: Workspace) -> None:
        deadline = time.monotonic() + 30
        try:
            while time.monotonic() < deadline:
                workspace.write("again.txt", "and again")
                time.sleep(0.02)
        finally:
            ended.set()

    played.delays["ACK"] = 0.2
    played.faults["ACK"] = [STALE]
    played.send(played.directive(1))
    await serve_until(service_of(patient, eager=True), settings_for(played), ended.is_set)
    assert not played.results()


async def test_a_batch_that_is_refused_as_a_whole_is_sent_one_by_one(played: PlayedOrchestrator) -> None:
    played.always["BATCH"] = (413, {"code": "BODY_TOO_LARGE"})
    played.delays = {"ACK": 0.1}
    played.send(*(played.directive(number) for number in range(12)))
    settings = settings_for(played, concurrency=12)
    await serve_until(service_of(work), settings, lambda: len(played.results()) == 12)
    assert "/v1/callbacks:batch" in played.paths
    assert {one["status"] for one in played.results()} == {"SUCCEEDED"}
    assert all(one.batch is None for one in played.calls)


@pytest.mark.parametrize("fault", [AWAY, HANG_UP, (200, {"outcomes": []}), (200, b"[]")], ids=str)
async def test_a_batch_without_answers_is_sent_again(played: PlayedOrchestrator, fault: Answer) -> None:
    played.faults["BATCH"] = [fault]
    played.delays = {"ACK": 0.1}
    played.send(*(played.directive(number) for number in range(12)))
    settings = settings_for(played, concurrency=12)
    await serve_until(service_of(work), settings, lambda: len(played.results()) == 12)
    assert played.faults["BATCH"] == []
    assert {one["status"] for one in played.results()} == {"SUCCEEDED"}


async def test_one_item_of_a_batch_may_be_refused(played: PlayedOrchestrator) -> None:
    played.delays = {"ACK": 0.2, "RESULT": 0.2, "CALLBACKS:BATCH": 0.2}
    played.faults["RESULT"] = [(422, {"code": "ARTIFACTS_TOO_LARGE"})]
    played.send(*(played.directive(number) for number in range(12)))
    settings = settings_for(played, concurrency=12)
    await serve_until(service_of(work), settings, lambda: len(played.results()) == 13)
    refused = [one for one in played.results() if one["status"] == "FAILED"]
    assert [one["error"]["code"] for one in refused] == ["RESULT_REFUSED"]


async def test_a_callback_that_cannot_be_put_on_the_wire_harms_nobody(
    played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever slips through the checks: those that are sent together with it still arrive."""
    from lucius.platform import steps

    made = steps.success_result

    def spoilt(*arguments: Any) -> dict[str, Any]:
        result = made(*arguments)
        if result["artifacts"]["job"] == "job-3":
            result["artifacts"] = {"not": object()}
        return result

    monkeypatch.setattr(steps, "success_result", spoilt)
    played.delays = {"ACK": 0.2, "RESULT": 0.2, "CALLBACKS:BATCH": 0.2}
    played.send(*(played.directive(number) for number in range(12)))
    settings = settings_for(played, concurrency=12)
    await serve_until(service_of(work), settings, lambda: len(played.results()) == 12)
    (spoilt_result,) = played.results("job-3")
    assert spoilt_result["error"]["code"] == "RESULT_REFUSED"
    played.send(*(played.directive(number) for number in range(20, 30)))
    await serve_until(service_of(work), settings, lambda: len(played.results()) == 22)
