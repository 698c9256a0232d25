"""Runbooks over HTTP: publishing, versions, automation, sources and dry runs; and who may do what."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, QUICK, YAML, RunbookCaller, csv_of

from lucius.api.runbook_operations import RUNBOOK_OPERATIONS
from lucius.domain.errors import STATUS_OF
from lucius.runbooks.core.definition.schema import runbook_schema

SOURCE = """\
name: sourced
data_source:
  type: csv
  connection: LUCIUS_SOURCE_MEMBERS
  primary_key: Upn
  batch_time_column: Date
  multi_valued_columns: [{name: Aliases, format: semicolon_delimited}]
phases:
  - name: only
    offset: T-1d
    steps:
      - {name: a, worker_id: w, function: A, params: {All: "{{Aliases}}", At: "{{_batch_start_time}}"}}
"""


@pytest.fixture
async def caller(open_api: Any) -> RunbookCaller:
    return RunbookCaller(await open_api(**QUICK))


@pytest.fixture
async def sourced(caller: RunbookCaller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunbookCaller:
    """A runbook with a file of members, whose automation is off: nothing happens but what a test asks for."""
    file = tmp_path / "members.csv"
    file.write_text("Upn,Date,Aliases\nann,2031-01-01,a;b\nbob,2032-01-01,\n,2031-01-01,x\ncarl,2031-01-01,c\n")
    monkeypatch.setenv("LUCIUS_SOURCE_MEMBERS", str(file))
    await caller.publish(SOURCE)
    await caller.post("/v1/runbooks/sourced:stop")
    return caller


# --- Publishing ------------------------------------------------------------------------------------------------------


async def test_publishing_the_same_text_twice_makes_one_version(caller: RunbookCaller) -> None:
    assert await caller.publish(PLAIN) == {
        "name": "plain",
        "version": 1,
        "published": True,
        "automation": True,
        "unchecked": None,
        "missing_connection": None,
    }
    assert await caller.publish(PLAIN) == {
        "name": "plain",
        "version": 1,
        "published": False,
        "automation": True,
        "unchecked": None,
        "missing_connection": None,
    }
    assert (await caller.publish(PLAIN, overdue_behavior="ignore", rerun_init=True))["version"] == 2
    (line,) = (await caller.get("/v1/runbooks"))["items"]
    assert line["created_by"]
    assert {name: line[name] for name in ("name", "version", "is_active", "overdue_behavior", "rerun_init")} == {
        "name": "plain", "version": 2, "is_active": True, "overdue_behavior": "ignore", "rerun_init": True,
    }  # fmt: skip
    assert (line["automation"], line["open_batches"]) == (True, 0)


async def test_a_runbook_is_shown_with_its_text_and_versions(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    changed = PLAIN.replace("function: B", "function: C")
    await caller.publish(changed)
    shown = await caller.get("/v1/runbooks/plain")
    assert (shown["version"], shown["yaml"], shown["is_active"]) == (2, changed, True)
    assert [(one["version"], one["is_active"]) for one in shown["versions"]] == [(2, True), (1, False)]
    assert shown["source"]["state"] == "never_read"
    first = await caller.get("/v1/runbooks/plain", version=1)
    assert (first["version"], first["yaml"], first["is_active"]) == (1, PLAIN, False)
    answer = await caller.client.get("/v1/runbooks/plain?version=3")
    caller.api.assert_problem(answer, 404, "NOT_FOUND")
    diff = await caller.get("/v1/runbooks/plain/diff", **{"from": 1, "to": 2})
    assert diff["differences"] == [
        {"kind": "changed", "where": "phase only / step b / function", "before": "B", "after": "C"}
    ]
    assert (await caller.get("/v1/runbooks/plain/diff", **{"from": 2, "to": 2}))["differences"] == []


WRONG_QUERIES = ["", "?from=1", "?to=1", "?from=x&to=1", "?from=1&to=1&more=1", "?from=0&to=1"]


async def test_diff_wants_both_versions(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    for query in WRONG_QUERIES:
        answer = await caller.client.get(f"/v1/runbooks/plain/diff{query}")
        caller.api.assert_problem(answer, 422, "ENVELOPE_INVALID")


async def test_a_runbook_that_is_invalid_is_refused_with_every_fault_on_its_line(caller: RunbookCaller) -> None:
    text = PLAIN.replace("offset: T-0", "offset: soon").replace("function: B", "function: ''")
    answer = await caller.client.post("/v1/runbooks", json={"yaml": text})
    problem = caller.api.assert_problem(answer, 422, "RUNBOOK_INVALID", "/phases/0/offset")
    assert problem["errors"][0]["detail"].startswith("line 5: ")
    assert len(problem["errors"]) == 2
    assert (await caller.get("/v1/runbooks"))["items"] == []


WRONG_TEXTS = [
    {},
    {"yaml": 1},
    {"yaml": PLAIN, "more": 1},
    {"yaml": PLAIN, "overdue_behavior": "never"},
    {"yaml": PLAIN, "rerun_init": "yes"},
]


async def test_publishing_with_a_wrong_body_is_refused(caller: RunbookCaller) -> None:
    for body in WRONG_TEXTS:
        caller.api.assert_problem(await caller.client.post("/v1/runbooks", json=body), 422, "ENVELOPE_INVALID")


async def test_texts_beyond_the_limit_are_refused(caller: RunbookCaller) -> None:
    for size, status in ((300_000, 422), (700_000, 413)):
        answer = await caller.client.post("/v1/runbooks", json={"yaml": "#" * size})
        assert answer.status_code == status, answer.text


async def test_names_that_share_a_table_are_a_conflict(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN.replace("name: plain", "name: my-runbook"))
    answer = await caller.client.post("/v1/runbooks", json={"yaml": PLAIN.replace("name: plain", "name: My Runbook")})
    caller.api.assert_problem(answer, 409, "CONFLICT", "/name")


async def test_validation_publishes_nothing(caller: RunbookCaller) -> None:
    good = await caller.post("/v1/runbooks:validate", {"yaml": YAML})
    assert good == {
        "valid": True,
        "name": "move",
        "faults": [],
        "phases": [
            {"name": "prep", "offset": "T-1h", "steps": ["notify", "start"]},
            {"name": "cutover", "offset": "T-0", "steps": ["finish"]},
        ],
    }
    bad = await caller.post("/v1/runbooks:validate", {"yaml": YAML.replace("on_failure: undo", "on_failure: redo")})
    assert bad["valid"] is False
    assert bad["phases"] == []
    assert [(one["line"], one["pointer"]) for one in bad["faults"]] == [(11, "/phases/0/steps/1/on_failure")]
    assert (await caller.get("/v1/runbooks"))["items"] == []


async def test_the_schema_for_editors_is_given(caller: RunbookCaller) -> None:
    assert await caller.get("/v1/runbook-schema") == runbook_schema()


async def test_a_retired_runbook_makes_no_batches(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    assert await caller.post("/v1/runbooks/plain:retire") == {"name": "plain", "version": 1, "retired": True}
    answer = await caller.client.post("/v1/batches", json={"runbook": "plain", "csv": csv_of("a")})
    caller.api.assert_problem(answer, 404, "NOT_FOUND")
    assert (await caller.get("/v1/runbooks/plain"))["is_active"] is False
    assert (await caller.publish(PLAIN))["version"] == 2


async def test_automation_is_switched(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    assert await caller.post("/v1/runbooks/plain:stop") == {"name": "plain", "automation": False}
    assert (await caller.get("/v1/runbooks/plain"))["automation"] is False
    batch = await caller.create("ann", runbook="plain")
    assert "automation is off for runbook plain: start it again" in (await caller.batch(batch))["waiting_for"]
    assert await caller.post("/v1/runbooks/plain:start") == {"name": "plain", "automation": True}
    await caller.work_until(batch, "completed")
    kinds = [one["kind"] for one in (await caller.get("/v1/runbooks/plain/events", limit=500))["items"]]
    assert {"automation-off", "automation-on"} <= set(kinds)


async def test_names_with_spaces_are_addresses_too(caller: RunbookCaller) -> None:
    answer = await caller.client.post("/v1/runbooks", json={"yaml": PLAIN.replace("name: plain", "name: Big Move")})
    assert (await caller.get(answer.headers["location"]))["name"] == "Big Move"


NO_RUNBOOKS = ["none", "9", "a%00b", "x" * 200, "%C3%A9"]


async def test_a_runbook_that_is_not_there_is_not_found(caller: RunbookCaller) -> None:
    for name in NO_RUNBOOKS:
        for path in ("", "/diff?from=1&to=2", "/events"):
            answer = await caller.client.get(f"/v1/runbooks/{name}{path}")
            caller.api.assert_problem(answer, 404, "NOT_FOUND")
        for verb in ("retire", "stop", "start", "confirm", "preview", "dry-run"):
            answer = await caller.client.post(f"/v1/runbooks/{name}:{verb}", json={})
            caller.api.assert_problem(answer, 404, "NOT_FOUND")


# --- Sources and dry runs --------------------------------------------------------------------------------------------


async def test_preview_shows_the_first_rows_and_what_is_wrong_with_them(sourced: RunbookCaller) -> None:
    shown = await sourced.post("/v1/runbooks/sourced:preview")
    assert shown["columns"] == ["Upn", "Date", "Aliases"]
    assert shown["rows"][0] == ["ann", "2031-01-01", "a;b"]
    assert shown["members"] == 3
    assert [(one["row"], one["key"]) for one in shown["faults"]] == [(3, None)]
    assert len((await sourced.post("/v1/runbooks/sourced:preview", {"limit": 1}))["rows"]) == 1


async def test_a_source_that_fails_says_so(sourced: RunbookCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUCIUS_SOURCE_MEMBERS")
    for verb in ("preview", "dry-run"):
        answer = await sourced.client.post(f"/v1/runbooks/sourced:{verb}", json={})
        problem = sourced.api.assert_problem(answer, 422, "SOURCE_FAILED")
        assert "LUCIUS_SOURCE_MEMBERS" in problem["detail"]


async def test_a_runbook_without_a_source_has_no_preview(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    for verb in ("preview", "dry-run"):
        answer = await caller.client.post(f"/v1/runbooks/plain:{verb}", json={})
        caller.api.assert_problem(answer, 409, "CONFLICT")


WRONG_TRIALS = [
    ("preview", {"limit": 0}, "/limit"),
    ("preview", {"limit": 201}, "/limit"),
    ("preview", {"more": 1}, ""),
    ("dry-run", {"limit": 0}, "/limit"),
    ("dry-run", {"start": "soon"}, "/start"),
    ("dry-run", {"more": 1}, ""),
]


async def test_trials_with_a_wrong_body_are_refused(sourced: RunbookCaller) -> None:
    for verb, body, pointer in WRONG_TRIALS:
        answer = await sourced.client.post(f"/v1/runbooks/sourced:{verb}", json=body)
        sourced.api.assert_problem(answer, 422, "ENVELOPE_INVALID", pointer)


async def test_confirming_a_source_that_is_not_held_is_a_conflict(sourced: RunbookCaller) -> None:
    answer = await sourced.client.post("/v1/runbooks/sourced:confirm", json={})
    sourced.api.assert_problem(answer, 409, "CONFLICT")


async def test_dry_run_takes_the_next_batch_of_the_source(sourced: RunbookCaller) -> None:
    shown = await sourced.post("/v1/runbooks/sourced:dry-run")
    assert shown["start"] == "2031-01-01T00:00:00.000Z"
    assert shown["phases"] == [{"name": "only", "offset": "T-1d", "due_at": "2030-12-31T00:00:00.000Z"}]
    assert [one["member"] for one in shown["members"]] == ["ann", "carl"]
    (step,) = shown["members"][0]["steps"]
    assert step["params"] == {"All": ["a", "b"], "At": "2031-01-01T00:00:00Z"}
    shown = await sourced.post("/v1/runbooks/sourced:dry-run", {"start": "2033-01-01T00:00:00+01:00", "limit": 1})
    assert (shown["start"], shown["total_members"]) == ("2032-12-31T23:00:00.000Z", 3)
    assert len(shown["members"]) == 1


async def test_dry_run_of_a_csv_shows_every_step_and_writes_nothing(caller: RunbookCaller) -> None:
    await caller.publish(YAML.replace("function: Finish", "function: 'Finish-{{Guid}}-{{Site}}'"))
    body = {"csv": csv_of("ann", "bob"), "start": "2031-01-01T00:00:00Z", "limit": 1}
    shown = await caller.post("/v1/runbooks/move:dry-run", body)
    assert (shown["name"], shown["version"], shown["total_members"]) == ("move", 1, 2)
    assert shown["init"][0]["params"] == {"Batch": 0}
    (ann,) = shown["members"]
    notify, start, finish = ann["steps"]
    assert notify == {
        "phase": "prep", "step": "notify", "worker_id": "exchange", "function": "Notify", "params": {"Upn": "ann"},
        "waits_for": [], "fault": None,
    }  # fmt: skip
    assert (start["params"], start["waits_for"]) == ({"Upn": "ann", "Guid": "{{Guid}}"}, ["Guid"])
    assert "{{Site}}" in finish["fault"]
    assert (await caller.get("/v1/batches"))["items"] == []
    assert await caller.pull(wait_seconds=0) == []
    answer = await caller.client.post("/v1/runbooks/move:dry-run", json={"csv": "Mail\nx\n"})
    caller.api.assert_problem(answer, 422, "MEMBERS_INVALID", "/csv")


# --- Who may do what -------------------------------------------------------------------------------------------------

ROLES = ("submit", "read", "work", "operate", "admin")


def key_of(name: str) -> str:
    return f"lk_{name}_0123456789"


@pytest.fixture
async def guarded(open_api: Any, tmp_path: Path) -> Any:
    """An application with a key for each role, on all tenants and on one."""
    lines = []
    for role in ROLES:
        for name, tenants in ((role, "*"), (f"{role}-at-acme", ["acme"])):
            digest = hashlib.sha256(key_of(name).encode()).hexdigest()
            lines.append({"name": name, "sha256": digest, "tenants": tenants, "roles": [role]})
    file = tmp_path / "keys.yaml"
    file.write_text(json.dumps(lines))  # JSON is YAML.
    return await open_api(api_keys_file=str(file))


async def test_every_call_needs_its_role(guarded: Any) -> None:
    """On any tenant; without workers of its own, a tenant takes no jobs."""
    for role in ROLES:
        for name, _is_everywhere in ((role, True), (f"{role}-at-acme", False)):
            api = guarded.with_key(key_of(name))
            for operation in RUNBOOK_OPERATIONS:
                path = operation.path.replace("{name}", "none").replace("{batch_id}", "1")
                answer = await api.client.request(operation.method, path, json={} if operation.body else None)
                if role in (operation.role, "admin"):
                    assert answer.status_code in (200, 201, 404, 422), (operation.name, name, answer.text)
                else:
                    api.assert_problem(answer, 403, "FORBIDDEN")
            await api.client.aclose()


async def test_acts_are_written_under_the_name_of_the_caller(guarded: Any) -> None:
    admin = RunbookCaller(guarded.with_key(key_of("admin")))
    operator = RunbookCaller(guarded.with_key(key_of("operate")))
    await admin.publish(PLAIN)
    batch = await operator.create("ann", runbook="plain", start="2031-01-01T00:00:00Z")
    await operator.act(batch, "cancel")
    trail = await admin.get("/v1/runbooks/plain/events")
    actors = {one["kind"]: one["actor"] for one in trail["items"]}
    assert (actors["runbook-published"], actors["batch-cancelled"]) == ("key:admin", "key:operate")
    await admin.client.aclose()
    await operator.client.aclose()


async def test_phases_are_approved_by_callers_that_neither_published_nor_created(guarded: Any) -> None:
    admin = RunbookCaller(guarded.with_key(key_of("admin")))
    operator = RunbookCaller(guarded.with_key(key_of("operate")))
    await admin.publish(PLAIN.replace("offset:", "approval: {count: 1}\n    offset:", 1))
    batch = await admin.create("ann", runbook="plain", start="2031-01-01T00:00:00Z")
    phase = (await admin.batch(batch))["phase_list"][0]
    path = f"/v1/batches/{batch}/phases/{phase['phase']}"
    assert (phase["approval"]["missing"], phase["approval"]["decisions"]) == (1, [])
    answer = await admin.client.post(f"{path}:approve")
    admin.api.assert_problem(answer, 403, "FORBIDDEN")
    assert "somebody else has to approve" in answer.text
    said = await operator.post(f"{path}:approve", {"reason": "checked"})
    assert (said["phase"], said["approvals_missing"]) == (phase["phase"], 0)
    approval = (await admin.batch(batch))["phase_list"][0]["approval"]
    assert [(one["by"], one["reason"]) for one in approval["decisions"]] == [("key:operate", "checked")]
    assert (await admin.post(f"{path}:refuse", {"reason": "a mistake"}))["status"] == "failed"
    operator.api.assert_problem(await operator.client.post(f"{path}:approve"), 409, "CONFLICT")
    missing = f"/v1/batches/{batch}/phases/nothing:approve"
    operator.api.assert_problem(await operator.client.post(missing), 404, "NOT_FOUND")
    await admin.client.aclose()
    await operator.client.aclose()


def test_every_error_of_an_operation_has_a_status() -> None:
    assert {code for operation in RUNBOOK_OPERATIONS for code in operation.errors} <= set(STATUS_OF)
