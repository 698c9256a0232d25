"""Rehearsals on the server, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, QUICK, RunbookCaller, csv_of

from lucius.runbooks.rehearsal import service


async def rehearsed(caller: RunbookCaller, **body: Any) -> Any:
    return await caller.client.post("/v1/runbooks/plain:rehearse", json=body)


async def test_report_is_made_kept_and_listed_newest_first(open_api: Any) -> None:
    caller = RunbookCaller(await open_api(**QUICK))
    await caller.publish(PLAIN)
    made = [(await rehearsed(caller, count=5)).json(), (await rehearsed(caller, csv=csv_of("ann", "bob"))).json()]
    assert [one["report"]["members"] for one in made] == [5, 2]
    assert {one["version"] for one in made} == {1}
    assert made[0]["report"]["miss_count"] == len(made[0]["report"]["misses"])
    listed = (await caller.client.get("/v1/runbooks/plain/rehearsals")).json()["items"]
    assert listed == made[::-1]
    one = await caller.client.get(f"/v1/runbooks/plain/rehearsals/{made[0]['rehearsal_id']}")
    assert one.json() == made[0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "ENVELOPE_INVALID"),
        ({"count": 1, "csv": "Upn\nann\n"}, "ENVELOPE_INVALID"),
        ({"count": 2_001}, "ENVELOPE_INVALID"),
        ({"count": 1, "fail": "many"}, "ENVELOPE_INVALID"),
        ({"count": 1, "start": "tomorrow"}, "ENVELOPE_INVALID"),
        ({"csv": "Other\nann\n"}, "MEMBERS_INVALID"),
        ({"csv": csv_of(*(f"user-{number}" for number in range(2_001)))}, "ENVELOPE_INVALID"),
    ],
)
async def test_bad_wishes_are_refused(open_api: Any, body: dict[str, Any], code: str) -> None:
    caller = RunbookCaller(await open_api(**QUICK))
    await caller.publish(PLAIN)
    answer = await rehearsed(caller, **body)
    caller.api.assert_problem(answer, 422, code)


async def test_one_at_a_time_and_not_for_longer_than_allowed(open_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = RunbookCaller(await open_api(**QUICK))
    await caller.publish(PLAIN)
    first = asyncio.create_task(rehearsed(caller, count=5))
    rehearsals = caller.api.context.runbooks.rehearsals
    while not rehearsals._running.locked():
        await asyncio.sleep(0.001)
    busy = await rehearsed(caller, count=5)
    problem = caller.api.assert_problem(busy, 409, "CONFLICT")
    assert "is rehearsing another runbook" in problem["detail"]
    assert (await first).status_code == 201
    monkeypatch.setattr(service, "SECONDS_MAX", 0.01)
    late = caller.api.assert_problem(await rehearsed(caller, count=5), 409, "CONFLICT")
    assert "took longer than" in late["detail"]
    missing = await caller.client.get("/v1/runbooks/plain/rehearsals/019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a")
    caller.api.assert_problem(missing, 404, "NOT_FOUND")


async def test_stopping_starting_and_retiring_take_a_reason(open_api: Any) -> None:
    caller = RunbookCaller(await open_api(**QUICK))
    await caller.publish(PLAIN)
    for verb in ("stop", "start", "retire"):
        answer = await caller.client.post(f"/v1/runbooks/plain:{verb}", json={"reason": f"because of {verb}"})
        assert answer.status_code == 200, answer.text
    audit = (await caller.client.get("/v1/admin/audit", params={"kind": "runbook"})).json()["items"]
    assert [one["reason"] for one in audit[:3]] == ["because of retire", "because of start", "because of stop"]
