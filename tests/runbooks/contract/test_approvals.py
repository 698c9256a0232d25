"""Decision 0057: a phase that needs approval waits for it; refused, what follows does not run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from harness import FAILURE, OPERATOR, SUCCESS, Harness, csv, open_harness, runbook

from lucius.domain.errors import CallerError
from lucius.runbooks.core.answers import BatchActed
from lucius.runbooks.core.approvals import APPROVED, REFUSED
from lucius.sql.postgres import PostgresDatabase

HOUR = 3_600
DAY = 86_400


def text(approval: dict[str, Any], phase: str = "go", **parts: Any) -> str:
    """Three phases, an hour apart; one of them needs approval."""
    offsets = {"prep": "T-0", "go": "T+1h", "end": "T+2h"}
    return runbook({name: [name] for name in offsets}, offsets=offsets, approvals={phase: approval}, **parts)


async def decide(
    harness: Harness, by: str, decision: str = APPROVED, phase: str = "go", role: str = "operate", reason: str = ""
) -> BatchActed:
    return await harness.operations.decide(1, phase, decision, by, lambda wanted: wanted == role, reason)


async def at_go(harness: Harness, approval: dict[str, Any], members: tuple[str, ...] = ("a",), **parts: Any) -> None:
    """The phase `go` is due and waits."""
    await harness.publish(text(approval, **parts))
    await harness.batch("moves", members)
    await harness.step()
    await harness.step(HOUR)


async def waits(harness: Harness) -> list[str]:
    return (await harness.queries.batch(1))["waiting_for"]


async def test_a_phase_waits_for_all_its_approvals_and_each_approver_counts_once(harness: Harness) -> None:
    await at_go(harness, {"count": 2})
    assert harness.functions() == ["prep"]
    (needed,) = await harness.events("approval-needed")
    assert (needed["phase"], needed["role"], needed["missing"], needed["otherwise"]) == ("go", "operate", 2, "fail")
    assert (await decide(harness, "key:anna", reason="fine"))["approvals_missing"] == 1
    assert (await decide(harness, "key:anna"))["approvals_missing"] == 1
    await harness.step()
    assert harness.functions() == ["prep"]
    assert "it needs approval (1 of 2 approvals, by key:anna)" in (await waits(harness))[0]
    found, _ = await harness.queries.members(1, "all", None, 1, None)
    assert "it needs approval" in (found[0]["waiting_for"] or "")
    assert (await decide(harness, "key:bert"))["approvals_missing"] == 0
    await harness.step()
    assert harness.functions() == ["prep", "go"]
    assert [event["approvals"] for event in await harness.events("phase-approved")] == [1, 2]
    shown = (await harness.queries.batch(1))["phase_list"][1]["approval"]
    assert shown is not None
    assert [(one["by"], one["decision"], one["reason"]) for one in shown["decisions"]] == [
        ("key:anna", "approved", "fine"),
        ("key:bert", "approved", None),
    ]
    await harness.step(HOUR)
    assert (await harness.batch_status(), len(await harness.events("approval-needed"))) == ("completed", 1)


async def test_a_phase_that_is_approved_before_it_is_due_begins_in_time(harness: Harness) -> None:
    await harness.publish(text({}))
    await harness.batch("moves", ["a"])
    await decide(harness, "key:anna")
    await harness.step()
    await harness.step(HOUR)
    assert (harness.functions(), await harness.events("approval-needed")) == (["prep", "go"], [])


async def test_neither_the_publisher_nor_the_creator_of_the_batch_may_approve(harness: Harness) -> None:
    await harness.publishing.publish(text({}).encode(), "key:paul")
    await harness.operations.create_batch("moves", csv(["a"]), harness.clock.now(), "time", "key:carl")
    for name, why in {"key:paul": "published version 1 of moves", "key:carl": "created batch 1"}.items():
        with pytest.raises(CallerError, match=f"FORBIDDEN: {name} {why}: somebody else has to approve"):
            await decide(harness, name)
    await decide(harness, "key:anna")
    await decide(harness, "key:paul", REFUSED)  # Everybody with the role may stop it.
    assert (await harness.phases())["go"] == "skipped"


async def test_an_approver_needs_the_role_that_the_runbook_names(harness: Harness) -> None:
    await at_go(harness, {"role": "admin"})
    for decision in (APPROVED, REFUSED):
        with pytest.raises(CallerError, match="FORBIDDEN: phase go is approved and refused with the role admin"):
            await decide(harness, "key:anna", decision)
    assert (await decide(harness, "key:anna", role="admin"))["approvals_missing"] == 0


async def test_refused_means_that_what_follows_does_not_run(harness: Harness) -> None:
    await at_go(harness, {"count": 2})
    await decide(harness, "key:anna")
    said = await decide(harness, "key:anna", REFUSED, reason="not today")
    assert (said.get("status"), await harness.batch_status()) == ("failed", "failed")
    assert await harness.phases() == {"prep": "completed", "go": "skipped", "end": "skipped"}
    reason = "phase go was refused by key:anna: not today"
    assert await harness.value("SELECT error_message FROM batches") == reason
    assert await harness.rows("SELECT DISTINCT error_message, skip_cause FROM phase_executions WHERE id > 1") == [
        (reason, "refused")
    ]
    await harness.step(5 * HOUR)
    assert harness.functions() == ["prep"]
    assert (await harness.queries.batch(1))["verdict"] == "failed"
    with pytest.raises(CallerError, match="CONFLICT"):
        await decide(harness, "key:bert")


async def test_what_runs_when_a_later_phase_is_refused_finishes_with_its_rollback(harness: Harness) -> None:
    phases = {"prep": [{"name": "one", "on_failure": "undo"}], "go": ["two"]}
    await harness.publish(runbook(phases, offsets={"go": "T+1h"}, approvals={"go": {}}, rollbacks={"undo": ["stop"]}))
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: None
    await harness.step()
    await decide(harness, "key:anna", REFUSED)
    assert await harness.batch_status() == "active"
    harness.answer = lambda job: FAILURE if job.function == "one" else SUCCESS
    await harness.settle()
    assert (await harness.followups(), await harness.batch_status()) == ({"rollback a stop": "succeeded"}, "failed")
    assert await harness.value("SELECT error_message FROM batches") == (
        "phases failed: prep; phase go was refused by key:anna"
    )
    assert (await harness.queries.batch(1))["verdict"] == "failed"


@pytest.mark.parametrize(
    ("otherwise", "phases", "functions", "status"),
    [
        ("fail", {"prep": "completed", "go": "skipped", "end": "skipped"}, ["prep"], "failed"),
        ("skip", {"prep": "completed", "go": "skipped", "end": "completed"}, ["prep", "end"], "completed"),
        ("run", {"prep": "completed", "go": "completed", "end": "completed"}, ["prep", "go", "end"], "completed"),
    ],
)
async def test_what_happens_when_nobody_approves_in_time(
    harness: Harness, otherwise: str, phases: dict[str, str], functions: list[str], status: str
) -> None:
    await at_go(harness, {"count": 2, "until": "T+5h", "otherwise": otherwise})
    await decide(harness, "key:anna")
    await harness.step(4 * HOUR - 1)
    assert harness.functions() == ["prep"]  # Nor does `end`, which is due: phases keep their order.
    await harness.step(1)
    await harness.step()
    assert (await harness.phases(), harness.functions(), await harness.batch_status()) == (phases, functions, status)
    (expired,) = await harness.events("approval-expired")
    assert (expired["otherwise"], expired["reason"].endswith("1 of 2 approvals, by key:anna")) == (otherwise, True)


async def test_a_later_phase_says_which_phase_it_waits_for_and_begins_after_it(harness: Harness) -> None:
    await at_go(harness, {})
    await harness.step(HOUR)
    (event,) = await harness.events("phase-waits")
    assert (event["phase"], event["reason"]) == ("end", "phase go before it needs approval")
    await decide(harness, "key:anna")
    await harness.step()
    assert harness.functions() == ["prep", "go", "end"]


async def test_a_decision_after_the_deadline_is_refused(harness: Harness) -> None:
    await at_go(harness, {"until": "1h"})
    harness.clock.advance(HOUR)
    for decision in (APPROVED, REFUSED):
        with pytest.raises(CallerError, match=r"CONFLICT: phase go of batch 1 is not approved by .*: 0 of 1 approval"):
            await decide(harness, "key:anna", decision)


@pytest.mark.parametrize(("phase", "code"), [("prep", "CONFLICT"), ("end", "CONFLICT"), ("nothing", "NOT_FOUND")])
async def test_only_a_phase_that_needs_approval_and_has_not_begun_can_be_decided(
    harness: Harness, phase: str, code: str
) -> None:
    await at_go(harness, {})
    with pytest.raises(CallerError, match=code):
        await decide(harness, "key:anna", phase=phase)


async def test_a_new_version_needs_approvals_of_its_own(harness: Harness) -> None:
    await at_go(harness, {}, phase="end")
    await decide(harness, "key:anna", phase="end")
    await harness.publish(text({}, phase="end", description="changed"), "ignore")
    await harness.step(HOUR)
    assert harness.functions() == ["prep", "go"]
    await decide(harness, "key:anna", phase="end")
    await harness.step()
    assert (harness.functions(), await harness.batch_status()) == (["prep", "go", "end"], "completed")


async def test_a_refusal_of_a_version_that_was_superseded_does_not_fail_the_batch(harness: Harness) -> None:
    await harness.publish(text({}, phase="end"))
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: None
    await harness.step()
    await decide(harness, "key:anna", REFUSED, phase="end")
    harness.clock.advance(1)  # Otherwise `prep` of the new version would be on time.
    await harness.publish(text({}, phase="go", description="changed"), "ignore")
    harness.answer = lambda job: SUCCESS
    await harness.step()
    await decide(harness, "key:anna")
    await harness.step(HOUR)
    await harness.step(HOUR)
    assert (harness.functions(), await harness.batch_status()) == (["prep", "go", "end"], "completed")


async def test_who_joins_a_phase_that_was_approved_needs_no_second_approval(harness: Harness) -> None:
    await at_go(harness, {})
    await decide(harness, "key:anna")
    await harness.step()
    await harness.operations.add_members(1, csv(["b"]), OPERATOR)
    await harness.settle()
    assert [job.function for job in harness.done if job.member == "b"] == ["prep", "go"]


async def test_a_batch_is_not_advanced_past_a_missing_approval(harness: Harness) -> None:
    await harness.publish(text({}))
    await harness.batch("moves", ["a"], advance="manual")
    await harness.operations.advance(1, OPERATOR)
    await harness.settle()
    with pytest.raises(CallerError, match=r"waits until .*: it needs approval \(0 of 1 approval\)"):
        await harness.operations.advance(1, OPERATOR)
    await decide(harness, "key:anna")
    await harness.operations.advance(1, OPERATOR)
    await harness.settle()
    assert harness.functions() == ["prep", "go"]


async def test_advancing_a_phase_that_was_not_approved_in_time_does_what_the_runbook_says(harness: Harness) -> None:
    await harness.publish(text({"until": "1h", "otherwise": "skip"}, phase="prep"))
    await harness.batch("moves", ["a"], advance="manual")
    harness.clock.advance(HOUR)
    said = await harness.operations.advance(1, OPERATOR)
    assert (said.get("phase"), said.get("approvals_missing"), harness.done) == ("prep", 1, [])
    assert (await harness.phases())["prep"] == "skipped"
    assert (await harness.operations.advance(1, OPERATOR)).get("phase") == "go"
    await harness.settle()
    assert harness.functions() == ["go"]


async def test_a_phase_is_approved_in_a_freeze_and_begins_after_it(harness: Harness) -> None:
    frozen = ["2026-05-28", "2026-05-29"]
    await harness.publish(text({"until": "10d"}, phase="prep", freeze=frozen))
    await harness.batch("moves", ["a"])
    await harness.step()
    assert len(await harness.events("approval-needed")) == 1
    await decide(harness, "key:anna", phase="prep")
    await harness.step()
    (event,) = await harness.events("phase-waits")
    assert event["reason"] == "frozen: 2026-05-29" or event["reason"] == "frozen: 2026-05-28"
    await harness.step(2 * DAY)
    assert "prep" in harness.functions()


async def test_two_processes_that_approve_at_once_count_both_and_start_the_phase_once(postgres_url: str) -> None:
    async with (
        PostgresDatabase(postgres_url, pool_max=4) as one,
        PostgresDatabase(postgres_url, pool_max=4) as other,
        open_harness(one) as first,
        open_harness(other, first.clock, holder="another") as second,
    ):
        await at_go(first, {"count": 3})
        await asyncio.gather(
            *(decide(harness, f"key:{name}") for name in ("anna", "bert", "cleo") for harness in (first, second))
        )
        assert await first.value("SELECT COUNT(*) FROM phase_approvals") == 3
        await first.step()
        assert first.functions() == ["prep", "go"]
        assert len(await first.events("phase-approved")) == 3
