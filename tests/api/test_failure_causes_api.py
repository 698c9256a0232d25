"""A failed attempt shows its cause: where it was raised, and which instance ran it."""

from __future__ import annotations

from typing import Any

FRAMES = [{"file": "service.py", "line": 8, "function": "work"}, {"file": "pdf.py", "line": 12, "function": "read"}]
DEFECT = {"code": "SERVICE_DEFECT", "message": "KeyError", "frames": FRAMES, "instance": "host.17.ab"}


async def test_cause_is_kept_with_job_step_and_attempt(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    await api.fail(error=DEFECT)
    job = await api.ended(job_id)
    (step,) = (await api.client.get(f"/v1/jobs/{job_id}/steps")).json()["steps"]
    assert job["error"] == step["error"] == step["attempts"][0]["error"] == DEFECT
    told = next(event for event in await api.events(job_id) if event["type"] == "RESULT")
    assert told["instance"] == "host.17.ab"


async def test_instance_is_that_of_the_ack_where_the_failure_names_none(api: Any) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    await api.ack(directive, acked_by="host.18.cd")
    error = {"code": "OOM", "message": "out of memory"}
    await api.result(directive, "FAILED", failure_class="NON_RETRYABLE", error=error)
    assert (await api.job(job_id))["error"] == {**error, "instance": "host.18.cd"}


async def test_lease_that_ran_out_names_the_instance_that_went_silent(api: Any) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    await api.ack(directive, acked_by="host.18.cd")
    api.clock.shift_seconds = 10_000
    while (error := (await api.job(job_id))["steps"][0]["error"]) is None:
        pass
    assert (error["code"], error["instance"]) == ("LEASE_EXPIRED", "host.18.cd")


async def test_cause_is_bounded(api: Any) -> None:
    job_id = await api.accepted()
    frames = [{"file": "f" * 300, "line": -1, "function": f"f{number}\x00"} for number in range(50)]
    await api.fail(error={"code": "DEEP", "message": "m", "frames": frames, "instance": "i" * 500})
    error = (await api.ended(job_id))["error"]
    assert [frame["function"] for frame in error["frames"]] == [f"f{number}\ufffd" for number in range(40, 50)]
    assert {(len(frame["file"]), frame["line"]) for frame in error["frames"]} == {(256, 0)}
    assert len(error["instance"]) == 128
