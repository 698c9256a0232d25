"""Jobs of tenants' runbooks go to granted workers only, whenever and by whatever they are sent."""

from __future__ import annotations

import pytest
from harness import OPERATOR, SUCCESS, WORKER, Harness, runbook

from lucius.domain.errors import CallerError
from lucius.domain.runbook_tenants import RunbookGrants
from lucius.ports.bus import DeliveryRef
from lucius.runbooks.core.grants import Grants
from lucius.runbooks.core.messages import JOBS_TOPIC
from lucius.runbooks.service.scope import Scope

NAME = "acme.moves"
REFUSAL = f"the job cannot be sent: the tenant acme may not use the worker {WORKER}"


def grant(harness: Harness, **grants: RunbookGrants) -> None:
    harness.turns.grants = Grants(lambda: grants)


@pytest.fixture
async def granted(harness: Harness) -> Harness:
    grant(harness, acme=RunbookGrants(workers=(WORKER,)))
    await harness.publish(runbook({"one": ["a", "b"]}, name=NAME))
    await harness.batch(NAME, ["ann"])
    await harness.tick()
    await harness.handle_events()
    return harness


async def test_the_next_step_fails_once_its_worker_is_withdrawn(granted: Harness) -> None:
    [job] = await granted.take_jobs()
    grant(granted)
    await granted.reply(job, SUCCESS)
    assert await granted.take_jobs() == []
    [member], _ = await granted.queries.members(1, "failed", None, 1, None)
    assert [step["status"] for step in member["steps"]] == ["succeeded", "failed"]
    assert member["steps"][1]["error"].startswith(REFUSAL)


async def test_a_dead_job_is_not_sent_again_to_a_withdrawn_worker(granted: Harness) -> None:
    [job] = await granted.take_jobs()
    await granted.bus.dead_letter([DeliveryRef(JOBS_TOPIC, WORKER, job.id)], "DELIVERED_TOO_OFTEN")
    grant(granted)
    with pytest.raises(CallerError, match=f"message {job.id} cannot be sent again: the tenant acme may not use"):
        await granted.dead_letters.send_again(1, None, OPERATOR)
    grant(granted, acme=RunbookGrants(own_workers=(WORKER,)))
    assert (await granted.dead_letters.send_again(1, None, OPERATOR))["sent"] == [job.id]


async def test_a_worker_that_a_tenant_owns_takes_nobody_elses_jobs(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves", ["ann"])
    grant(harness, acme=RunbookGrants(own_workers=(WORKER,)), rival=RunbookGrants(workers=(WORKER,)))
    await harness.tick()
    await harness.handle_events()
    assert await harness.take_jobs() == []
    [member], _ = await harness.queries.members(1, "failed", None, 1, None)
    assert "takes only jobs of the tenant that owns it" in member["steps"][0]["error"]
    with pytest.raises(CallerError, match="the tenant rival may not use the worker"):
        await harness.publish(runbook({"one": ["a"]}, name="rival.moves"))


def test_a_scope_without_tenants_sees_nothing() -> None:
    assert not any(Scope(frozenset()).sees(name) for name in ("moves", NAME, ".moves"))
    assert [name for name in ("moves", NAME, "rival.moves") if Scope(frozenset({"acme"})).sees(name)] == [NAME]
    assert all(Scope().sees(name) for name in ("moves", NAME))
