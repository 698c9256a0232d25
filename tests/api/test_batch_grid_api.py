"""The grid of a batch over HTTP, who is behind, and the reasons that operators give."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, QUICK, RunbookCaller, fail, succeed

LATER = "2031-05-01T12:00:00Z"
HOSTILE = "<script>alert(1)</script>'é"


@pytest.fixture
async def anywhere(ledger_settings: dict[str, str], open_api: Any) -> RunbookCaller:
    """On each ledger: the statements must hold on all of them."""
    return RunbookCaller(await open_api(**QUICK, **ledger_settings))


@pytest.fixture
async def caller(open_api: Any) -> RunbookCaller:
    return RunbookCaller(await open_api(**QUICK))


async def grid(caller: RunbookCaller, batch: int, **parameters: Any) -> dict[str, Any]:
    return dict(await caller.get(f"/v1/batches/{batch}/grid", **parameters))


def _sent(batch: dict[str, Any]) -> int:
    """Steps of the first phase that workers have."""
    return sum(step["counts"]["dispatched"] for step in batch["phase_list"][0]["steps"])


async def test_the_grid_is_whole_first_and_changes_from_then_on(anywhere: RunbookCaller) -> None:
    await anywhere.publish(PLAIN)
    batch = await anywhere.create("ann", HOSTILE, "c" * 100, runbook="plain")
    await anywhere.until(batch, lambda one: _sent(one) == 3)
    whole = await grid(anywhere, batch)
    assert whole["whole"]
    assert [(one["phase"], one["version"], one["step"]) for one in whole["columns"]] == [
        ("only", 1, "a"), ("only", 1, "b")
    ]  # fmt: skip
    assert whole["member_keys"] == ["ann", HOSTILE, "c" * 80]
    assert (whole["cells"], whole["member_states"]) == ("dpdpdp", "aaa")
    assert (await grid(anywhere, batch, since=whole["number"]))["cells"] == ""

    ann = whole["member_ids"][0]
    await anywhere.work(3, lambda job: fail(job) if job["parameters"]["Upn"] == "ann" else succeed(job))
    await anywhere.until(batch, lambda one: one["members"]["failed"] == 1)
    changes = await grid(anywhere, batch, since=whole["number"])
    assert not changes["whole"]
    assert "columns" not in changes
    cells = dict(zip(zip(changes["cell_members"], changes["cell_columns"], strict=True), changes["cells"], strict=True))
    assert (cells[ann, 0], cells[ann, 1]) == ("f", "c")
    assert {cells[other, 0] for other in whole["member_ids"][1:]} == {"s"}
    assert dict(zip(changes["member_ids"], changes["member_states"], strict=True))[ann] == "f"
    assert changes["number"] > whole["number"]

    shown = await anywhere.batch(batch)
    (behind,) = shown["behind"]
    assert (behind["phase"], behind["step"], behind["count"], behind["of"]) == ("only", "b", 2, 3)
    assert [one["member"] for one in behind["members"]] == [HOSTILE, "c" * 100]
    assert behind["members"][0]["since"] is not None


async def test_a_long_grid_is_compressed_for_those_who_take_it(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    batch = await caller.create(*(f"user-{number}@example.org" for number in range(300)), runbook="plain", start=LATER)
    path = f"/v1/batches/{batch}/grid"
    plain = await caller.client.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = await caller.client.get(path, headers={"Accept-Encoding": "br, gzip;q=0.8"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "accept-encoding" in packed.headers["vary"].lower()
    assert int(packed.headers["content-length"]) < len(plain.content) / 4
    assert packed.json() == plain.json()
    refused = await caller.client.get(path, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


async def test_acts_keep_the_reason_that_was_given(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    batch = await caller.create("ann", "bob", runbook="plain", start=LATER, advance="manual")
    await caller.act(batch, "advance", {"reason": "the window is open"})
    await caller.work(2, lambda job: fail(job) if job["parameters"]["Upn"] == "ann" else succeed(job))
    await caller.until(batch, lambda one: one["members"]["failed"] == 1)
    await caller.act(batch, "retry", {"members": ["ann"], "reason": "the mailbox was unlocked"})
    await caller.act(batch, "add", {"csv": "Upn\ncarl\n", "reason": "asked for on the phone"})
    await caller.act(batch, "remove", {"members": ["bob"], "reason": "left the company"})
    kept = {
        one["kind"]: one["detail"].get("reason") for one in (await caller.get(f"/v1/batches/{batch}/events"))["items"]
    }
    assert kept["batch-advanced"] == "the window is open"
    assert kept["member-retried"] == "the mailbox was unlocked"
    assert kept["member-added"] == "asked for on the phone"
    assert kept["member-removed"] == "by hand: left the company"
    for verb in ("advance", "retry", "resume", "cancel"):
        answer = await caller.client.post(f"/v1/batches/{batch}:{verb}", json={"reason": "x" * 501})
        caller.api.assert_problem(answer, 422, "ENVELOPE_INVALID")


async def test_the_export_takes_the_filter_of_members(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    batch = await caller.create("ann", "bob", "carl", runbook="plain", start=LATER)
    await caller.act(batch, "remove", {"members": ["bob"]})
    answer = await caller.client.get(f"/v1/batches/{batch}/export", params={"status": "removed"})
    assert [row[:2] for row in csv.reader(io.StringIO(answer.text, newline=""))][1:] == [["bob", "removed"]]
    answer = await caller.client.get(f"/v1/batches/{batch}/export", params={"status": "active"})
    assert [row[0] for row in csv.reader(io.StringIO(answer.text, newline=""))][1:] == ["ann", "carl"]
