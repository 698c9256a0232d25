"""A CSV must have every column that a template needs: null is never sent in place of one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.runbook_client import QUICK, RunbookCaller, succeed

YAML = """\
name: sites
data_source: {type: manual, primary_key: Upn}
phases:
  - name: prep
    offset: T-0
    steps:
      - {name: move, worker_id: exchange, function: Move, params: {Upn: "{{Upn}}", Site: "{{Site}}"}}
      - {name: tell, worker_id: exchange, function: Tell, params: {To: "{{Upn}} at {{Site}}"}, on_failure: undo}
on_member_removed:
  - {name: forget, worker_id: exchange, function: Forget, params: {Depot: "{{Depot}}"}}
rollbacks:
  undo:
    - {name: back, worker_id: exchange, function: Back, params: {Upn: "{{Upn}}"}}
"""
FULL = "Upn,Site,Depot\nann,Rome,\n"
NO_SITE = "Upn,Depot\nben,D1\n"


@pytest.fixture
async def caller(open_api: Any) -> RunbookCaller:
    caller = RunbookCaller(await open_api(**QUICK))
    await caller.publish(YAML)
    return caller


def assert_names_what_is_missing(caller: RunbookCaller, answer: Any) -> None:
    caller.api.assert_problem(answer, 422, "MEMBERS_INVALID", "/csv")
    faults = [fault["detail"] for fault in answer.json()["errors"]]
    assert faults == [
        "the CSV has no column Site, which {{Site}} needs in step move of phase prep and step tell of phase prep:"
        " add the column; a cell may be empty"
    ]


async def test_create_refuses_a_csv_without_a_column_that_a_template_needs(caller: RunbookCaller) -> None:
    answer = await caller.client.post("/v1/batches", json={"runbook": "sites", "csv": NO_SITE})
    assert_names_what_is_missing(caller, answer)
    # Nor once the table has the column, from an earlier batch.
    await caller.post("/v1/batches", {"runbook": "sites", "csv": FULL}, 201)
    assert_names_what_is_missing(
        caller, await caller.client.post("/v1/batches", json={"runbook": "sites", "csv": NO_SITE})
    )
    assert len((await caller.get("/v1/batches"))["items"]) == 1


async def test_add_refuses_it_too_and_an_empty_cell_is_an_empty_string(caller: RunbookCaller) -> None:
    made = await caller.post("/v1/batches", {"runbook": "sites", "csv": "Upn,Site,Depot\nann,,\n"}, 201)
    answer = await caller.client.post(f"/v1/batches/{made['batch_id']}:add", json={"csv": NO_SITE})
    assert_names_what_is_missing(caller, answer)
    sent = (await caller.work(1, succeed))[0]
    assert sent["parameters"] == {"Upn": "ann", "Site": ""}
    assert (await caller.work(1, succeed))[0]["parameters"] == {"To": "ann at "}


async def test_a_removal_or_rollback_template_needs_its_column_as_well(caller: RunbookCaller) -> None:
    answer = await caller.client.post("/v1/batches", json={"runbook": "sites", "csv": "Upn,Site\nann,Rome\n"})
    caller.api.assert_problem(answer, 422, "MEMBERS_INVALID", "/csv")
    assert "no column Depot, which {{Depot}} needs in step forget of on_member_removed" in answer.text
