"""A result counts only with its job's token: ids of jobs can be guessed, tokens cannot."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, QUICK, WORKER, RunbookCaller, fail, succeed

from lucius.sql.database import Fetch, Run, Script

STEPS = ("a", "b")


@pytest.fixture
async def busy(open_api: Any) -> RunbookCaller:
    """With a batch of three members, whose first jobs wait."""
    caller = RunbookCaller(await open_api(**QUICK))
    await caller.publish(PLAIN)
    await caller.create("ann", "bob", "carl", runbook="plain")
    await caller.until(1, lambda batch: "3 steps are with workers" in " ".join(batch["waiting_for"]))
    return caller


def guessed(number: int, **more: Any) -> dict[str, Any]:
    return {"jobId": f"step-{number}-a1", "status": "Success", **more}


async def statuses(caller: RunbookCaller) -> set[str]:
    return {step["status"] for member in await caller.members(1) for step in member["steps"] if step["step"] == "a"}


async def test_guessed_results_are_refused_and_change_nothing(busy: RunbookCaller) -> None:
    (pulled, *_) = await busy.jobs(1)
    (first, *rest) = [guessed(number) for number in range(1, 14)]
    answers = await busy.results(first, *rest)
    assert not [one for one in answers if one.get("outcome") == "APPLIED"]
    refused = [one for one in answers if one.get("code") == "UNAUTHENTICATED"]
    assert [one["jobId"] for one in refused] == ["step-1-a1", "step-3-a1", "step-5-a1"]
    assert "correlationData" in refused[0]["detail"]
    assert await statuses(busy) == {"dispatched"}
    assert len(await busy.pull()) == 2, "a refused result settles nobody's job"
    assert (await busy.results(succeed(pulled)))[0]["outcome"] == "APPLIED"


@pytest.mark.parametrize(
    "token", ["", "x", None, 7, "j1.k1.", "j1.nobody.aaaa", "v1.k1.9999999999.aaaa", "j1.k1." + "a" * 300]
)
async def test_a_made_up_token_is_refused(busy: RunbookCaller, token: Any) -> None:
    (job, *_) = await busy.jobs(3)
    (answer,) = await busy.results(guessed(1, correlationData={**job["correlationData"], "token": token}))
    assert answer["code"] == "UNAUTHENTICATED"


async def test_a_token_is_of_one_job_alone(busy: RunbookCaller) -> None:
    ann, bob, carl = await busy.jobs(3)
    stolen = succeed(ann) | {"correlationData": bob["correlationData"]}
    later = fail(carl) | {"jobId": carl["jobId"].replace("-a1", "-a2")}
    answers = await busy.results(stolen, later, fail(carl))
    assert [one.get("code") or one["outcome"] for one in answers] == ["UNAUTHENTICATED", "UNAUTHENTICATED", "APPLIED"]
    assert ann["correlationData"]["token"] != bob["correlationData"]["token"]


async def test_the_token_is_read_in_any_letter_case(busy: RunbookCaller) -> None:
    (job, *_) = await busy.jobs(3)
    echoed = {name.upper(): value for name, value in job["correlationData"].items()}
    (answer,) = await busy.results({"JOBID": job["jobId"], "STATUS": "Success", "CORRELATIONDATA": echoed})
    assert answer["outcome"] == "APPLIED"


async def test_locks_are_extended_only_with_the_jobs_tokens(busy: RunbookCaller) -> None:
    jobs = await busy.jobs(3)
    ids = [job["jobId"] for job in jobs]
    tokens = [job["correlationData"]["token"] for job in jobs]
    stranger = await busy.client.post("/v1/worker-jobs:renew", json={"workerId": WORKER, "jobIds": ids})
    problem = busy.api.assert_problem(stranger, 403, "FORBIDDEN")
    assert "tokens" in problem["detail"]
    mixed = {"jobIds": ids, "tokens": [tokens[0], tokens[0], None]}
    assert await busy.post("/v1/worker-jobs:renew", mixed) == {"renewed": [True, False, False]}
    whole = {"workerId": WORKER, "jobIds": [*ids, "step-999-a1"], "tokens": [*tokens, tokens[0]]}
    assert await busy.post("/v1/worker-jobs:renew", whole) == {"renewed": [True, True, True, False]}
    other = {"workerId": "other", "jobIds": ids, "tokens": tokens}
    assert await busy.post("/v1/worker-jobs:renew", other) == {"renewed": [False] * 3}
    few = await busy.client.post("/v1/worker-jobs:renew", json={"jobIds": ids, "tokens": tokens[:2]})
    busy.api.assert_problem(few, 422, "ENVELOPE_INVALID", "/tokens")


async def test_a_job_sent_before_the_upgrade_ends_without_a_token(busy: RunbookCaller) -> None:
    """What an earlier version sent has no token in its message, and its worker cannot send one back."""
    job, other, _ = await busy.jobs(3)

    def as_before(token: bool = False) -> Script[None]:
        yield Run("UPDATE step_executions SET has_token = $2 WHERE job_id = $1", [(job["jobId"], token)])

    await busy.api.context.runbooks.turns.database.write(as_before)
    old = {"jobId": job["jobId"], "status": "Success"}
    assert await busy.post("/v1/worker-jobs:renew", {"jobIds": [job["jobId"]]}) == {"renewed": [True]}
    forged = old | {"correlationData": other["correlationData"]}
    answers = await busy.results(forged, old)
    assert [one.get("code") or one["outcome"] for one in answers] == ["UNAUTHENTICATED", "APPLIED"]


async def test_a_token_signed_with_a_key_that_was_rotated_out_of_first_place_is_taken(open_api: Any) -> None:
    caller = RunbookCaller(await open_api(**QUICK))
    await caller.publish(PLAIN)
    await caller.create("ann", runbook="plain")
    (job,) = await caller.jobs(1)
    tokens = caller.api.context.runbooks.turns.tokens
    assert job["correlationData"]["token"].startswith("j1.k1.")
    rotated = type(tokens)((type(tokens.current)("k2", b"another secret of some length"), tokens.current))
    ids = (job["jobId"], WORKER, job["batchId"])
    assert rotated.verifies(job["correlationData"]["token"], *ids)
    assert rotated.mint(*ids).startswith("j1.k2.")
    assert not tokens.verifies(rotated.mint(*ids), *ids)


async def test_tokens_are_shown_nowhere_but_in_the_message(busy: RunbookCaller) -> None:
    jobs = await busy.jobs(3)
    await busy.results(guessed(1, correlationData={"token": "j1.k1.made-up"}), *(succeed(job) for job in jobs))
    shown = str([await busy.batch(1), await busy.members(1), await busy.get("/v1/batches/1/events")])
    assert "j1." not in shown

    def kept() -> Script[str]:
        tables = yield Fetch("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'messages'")
        rows = []
        for (table,) in tables:
            rows += [repr(tuple(row)) for row in (yield Fetch(f'SELECT * FROM "{table}"'))]
        return "\n".join(rows)

    assert "j1.k1" not in await busy.api.context.runbooks.turns.database.read(kept)


async def test_refused_results_are_counted(busy: RunbookCaller) -> None:
    await busy.results(guessed(1), guessed(3))
    text = (await busy.api.look("/metrics")).text
    assert 'lucius_runbook_results_total{outcome="FORGED"} 2.0' in text
