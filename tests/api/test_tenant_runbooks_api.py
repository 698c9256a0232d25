"""Runbooks of tenants: a tenant sees and operates its own, uses what it was granted, and knows of no others."""

from __future__ import annotations

import asyncio
import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.conftest import Api, new_client
from tests.api.runbook_client import QUICK, RunbookCaller, csv_of, succeed

from lucius.api.app import create_front
from lucius.api.examples import EXAMPLES
from lucius.api.operation import Operation
from lucius.api.operations import OPERATIONS
from lucius.api.runbook_scope import BATCH, RUNBOOK
from lucius.console.routes import console_routes

ROLES = ["read", "operate", "admin", "work"]
KEYS: dict[str, dict[str, Any]] = {
    "acme": {"tenants": ["acme"], "roles": ROLES},
    "rival": {"tenants": ["rival"], "roles": ROLES},
    "both": {"tenants": ["acme", "rival"], "roles": ["read"]},
    "ungranted": {"tenants": ["stranger"], "roles": ROLES},
}
GRANTS = {
    "acme": "{connections: [LUCIUS_SOURCE_ACME], workers: [shared], own_workers: [acme-mover]}",
    "rival": "{connections: [LUCIUS_SOURCE_RIVAL], workers: [shared], own_workers: [rival-mover]}",
}
YAML = """\
name: NAME
data_source: {type: manual, primary_key: Upn}
phases:
  - name: only
    offset: T-0
    steps:
      - {name: a, worker_id: WORKER, function: A, params: {Upn: "{{Upn}}"}}
"""
CSV_SOURCE = "{type: csv, connection: CONNECTION, primary_key: Upn, batch_time: immediate}"
UNKNOWN = {
    RUNBOOK: "acme.unknown",
    BATCH: "999999",
    "phase": "only",
    "rehearsal_id": "018f6b1e-7c00-7000-8000-0123456789ab",
}
OF_ONE = [one for one in OPERATIONS if f"{{{RUNBOOK}}}" in one.path or f"{{{BATCH}}}" in one.path]
LATER = "2031-01-01T00:00:00Z"


def text(name: str, worker: str = "acme-mover", source: str | None = None) -> str:
    yaml = YAML.replace("NAME", name).replace("WORKER", worker)
    return yaml if source is None else yaml.replace("{type: manual, primary_key: Upn}", source)


def told(variable: str) -> str:
    return f"notifications: {{recipients: [{{name: chat, kind: json, url_env: {variable}, template: x}}]}}\n"


def key_of(name: str) -> str:
    return f"lk_{name}_0123456789"


def grant(registry_folder: Path, tenant: str, grants: str | None) -> None:
    content = f"id: {tenant}\n" + ("" if grants is None else f"runbooks: {grants}\n")
    (registry_folder / "tenants" / f"{tenant}.yaml").write_text(content)


@pytest.fixture
async def api(open_api: Any, tmp_path: Path, registry_folder: Path) -> Api:
    entries = [{"name": name, "sha256": sha256(key_of(name).encode()).hexdigest()} | one for name, one in KEYS.items()]
    (tmp_path / "keys.yaml").write_text(json.dumps(entries))
    for tenant, grants in GRANTS.items():
        grant(registry_folder, tenant, grants)
    opened: Api = await open_api(
        **QUICK, api_keys_file=str(tmp_path / "keys.yaml"), registry=str(registry_folder), registry_reload_seconds=0.02,
        sources_file=str(tmp_path / "sources.env"), source_interval=0.05, source_still_seconds=0.0,
    )  # fmt: skip
    return opened


@pytest.fixture
async def callers(api: Api) -> Any:
    """Everybody by name; `operator` has every role on all tenants."""
    found = {name: RunbookCaller(api.with_key(key_of(name))) for name in KEYS}
    yield {"operator": RunbookCaller(api), **found}
    for one in found.values():
        await one.client.aclose()


async def ask(caller: RunbookCaller, operation: Operation, values: dict[str, str]) -> httpx.Response:
    body = EXAMPLES.get(operation.name, {}) if operation.body else None
    return await caller.client.request(operation.method, operation.path.format(**values), json=body)


# --- Who sees what ---------------------------------------------------------------------------------------------------


async def test_another_tenants_runbook_and_batch_are_unknown_in_every_route(callers: dict[str, RunbookCaller]) -> None:
    """Every route that names one, also those that are added later."""
    acme = callers["acme"]
    await acme.publish(text("acme.moves"))
    batch = str(await acme.create("ann", runbook="acme.moves", start=LATER, advance="manual"))
    rehearsed = await acme.post("/v1/runbooks/acme.moves:rehearse", {"count": 1}, 201)
    await callers["operator"].publish(text("moves", "shared"))
    values = UNKNOWN | {RUNBOOK: "acme.moves", BATCH: batch, "rehearsal_id": rehearsed["rehearsal_id"]}
    before = await acme.get(f"/v1/batches/{batch}/events")
    for stranger in ("rival", "ungranted"):
        for operation in OF_ONE:
            hidden = await ask(callers[stranger], operation, values)
            unknown = await ask(callers[stranger], operation, UNKNOWN)
            where = f"{operation.name} under {stranger}: {hidden.text}"
            assert (hidden.status_code, unknown.status_code) == (404, 404), where
            told = unknown.json()["detail"].replace(UNKNOWN[RUNBOOK], values[RUNBOOK]).replace(UNKNOWN[BATCH], batch)
            assert hidden.json()["detail"] == told, where
    for operation in OF_ONE:
        if f"{{{RUNBOOK}}}" in operation.path:  # The operator's runbooks are nobody else's.
            assert (await ask(acme, operation, values | {RUNBOOK: "moves"})).status_code == 404, operation.name
    assert await acme.get(f"/v1/batches/{batch}/events") == before
    for operation in OF_ONE:
        shown = await ask(acme, operation, values)
        is_known = shown.status_code in (200, 201) or shown.json()["code"] not in ("NOT_FOUND", "FORBIDDEN")
        has_other_cause = operation.name in ("removeMembers", "sendMessagesAgain", "diffRunbook", "getRunbook")
        assert is_known or has_other_cause, (operation.name, shown.text)


def test_every_other_route_of_runbooks_is_scoped_by_its_use_case() -> None:
    """Whoever adds a route that names no runbook and no batch decides what of it a tenant sees."""
    under = [one for one in OPERATIONS if one.path.startswith(("/v1/runbook", "/v1/batches"))]
    scoped = {"listRunbooks", "publishRunbook", "listBatches", "createBatch"}
    about_nothing = {"validateRunbook", "getRunbookSchema"}
    others = {one.name for one in under if one not in OF_ONE and not one.on_all_tenants}
    assert others == scoped | about_nothing
    assert [one.name for one in OF_ONE if one.on_all_tenants] == [], "tenants may do this with their own"
    misplaced = [one.name for one in OF_ONE if not one.path.startswith(("/v1/runbooks/{name}", "/v1/batches/{batch"))]
    assert misplaced == [], "the parameters name and batch_id are those of runbooks and batches"


async def test_lists_show_the_callers_tenants_and_only_those(callers: dict[str, RunbookCaller]) -> None:
    operator, made = callers["operator"], []
    for name, worker in (("acme.moves", "shared"), ("rival.moves", "shared"), ("moves", "shared")):
        await operator.publish(text(name, worker))
        made += [await operator.create("ann", runbook=name, start=LATER) for _ in range(2)]
    named = {"acme": ["acme.moves"], "rival": ["rival.moves"], "both": ["acme.moves", "rival.moves"], "ungranted": []}
    for name, runbooks in {**named, "operator": ["acme.moves", "moves", "rival.moves"]}.items():
        caller = callers[name]
        lines = (await caller.get("/v1/runbooks"))["items"]
        assert [line["name"] for line in lines] == runbooks
        assert [line["tenant"] for line in lines] == [one.rpartition(".")[0] or None for one in runbooks]
        batches, cursor = [], {}
        while True:
            page = await caller.get("/v1/batches", limit=1, **cursor)
            batches += page["items"]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert {one["runbook"] for one in batches} == set(runbooks)
        assert [one["batch_id"] for one in batches] == sorted((one["batch_id"] for one in batches), reverse=True)
        assert len(batches) == 2 * len(runbooks)
        foreign = (await caller.get("/v1/batches", runbook="rival.moves"))["items"]
        assert len(foreign) == (2 if "rival.moves" in runbooks else 0)
        audited = (await caller.get("/v1/admin/audit", kind="runbook"))["items"]
        assert sorted(one["target"] for one in audited) == runbooks
    assert len(made) == 6


async def test_a_batch_is_created_only_of_a_runbook_in_sight(callers: dict[str, RunbookCaller]) -> None:
    await callers["acme"].publish(text("acme.moves"))
    body = {"csv": csv_of("ann")}
    hidden = await callers["rival"].client.post("/v1/batches", json=body | {"runbook": "acme.moves"})
    unknown = await callers["rival"].client.post("/v1/batches", json=body | {"runbook": "acme.other"})
    assert (hidden.status_code, unknown.status_code) == (404, 404)
    assert hidden.json()["detail"] == unknown.json()["detail"].replace("acme.other", "acme.moves")
    assert (await callers["operator"].get("/v1/batches"))["items"] == []


# --- Publishing ------------------------------------------------------------------------------------------------------


REFUSED = [
    ("acme", text("moves"), "/name", "line 1: this key or token publishes only runbooks of its own tenants"),
    ("acme", text("rival.moves", "rival-mover"), "/name", "name it acme.NAME"),
    ("ungranted", text("acme.moves"), "/name", "name it stranger.NAME"),
    ("acme", text("Acme.moves"), "/name", "a tenant's id and a dot"),
    ("acme", text("acme.moves", "rival-mover"), "/phases/0/steps/0/worker_id", "may not use the worker rival-"),
    ("operator", text("acme.moves", "exchange"), "/phases/0/steps/0/worker_id", "line 7: the tenant acme may not"),
    ("operator", text("moves", "acme-mover"), "/phases/0/steps/0/worker_id", "only jobs of the tenant that owns"),
    ("operator", text("stranger.moves", "shared"), "/phases/0/steps/0/worker_id", "tenant stranger may not use"),
    (
        "acme", text("acme.moves", "shared", CSV_SOURCE.replace("CONNECTION", "LUCIUS_SOURCE_RIVAL")),
        "/data_source/connection", "line 2: the tenant acme may not use the connection LUCIUS_SOURCE_RIVAL",
    ),
    (
        "acme", text("acme.moves") + told("LUCIUS_NOTIFY_RIVAL"), "/notifications/recipients/0/url_env",
        "line 8: the tenant acme may not use the connection LUCIUS_NOTIFY_RIVAL",
    ),
]  # fmt: skip
"""Who publishes what, and where and how that is refused."""


async def test_publishing_keeps_to_the_tenant_and_its_grants(callers: dict[str, RunbookCaller]) -> None:
    for caller, yaml, pointer, words in REFUSED:
        answer = await callers[caller].client.post("/v1/runbooks", json={"yaml": yaml})
        told = callers[caller].api.assert_problem(answer, 422, "RUNBOOK_INVALID", pointer)
        assert words in told["errors"][0]["detail"], told
    assert (await callers["operator"].get("/v1/runbooks"))["items"] == []


async def test_recipients_of_a_tenants_runbook_are_its_own_business(
    callers: dict[str, RunbookCaller], registry_folder: Path
) -> None:
    """They are told while what they name is granted; nobody else sees or tests them."""
    acme, grants = callers["acme"], "{connections: [LUCIUS_NOTIFY_ACME], own_workers: [acme-mover]}"
    grant(registry_folder, "acme", grants)
    await until_connected(acme, "acme.moves", "LUCIUS_NOTIFY_ACME")
    await acme.publish(text("acme.moves") + told("LUCIUS_NOTIFY_ACME"))
    test = {"runbook": "acme.moves", "recipient": "chat"}
    sent = await acme.post("/v1/notifications:test", test, 202)
    assert (sent["tenant_id"], sent["runbook"]) == ("acme", "acme.moves")
    address = f"/v1/notifications/{sent['id']}"
    for caller, status in (("acme", 200), ("operator", 200), ("rival", 404), ("ungranted", 404)):
        assert (await callers[caller].client.get(address)).status_code == status, caller
        listed = await callers[caller].get("/v1/notifications", runbook="acme.moves")
        assert [one["id"] for one in listed["items"]] == ([sent["id"]] if status == 200 else []), caller
    refused = await callers["rival"].client.post("/v1/notifications:test", json=test)
    callers["rival"].api.assert_problem(refused, 404, "NOT_FOUND")
    grant(registry_folder, "acme", "{own_workers: [acme-mover]}")
    await until_connected(acme, "acme.moves", "LUCIUS_NOTIFY_ACME", False)
    withdrawn = await acme.client.post("/v1/notifications:test", json=test)
    assert "may not use" in acme.api.assert_problem(withdrawn, 409, "CONFLICT")["detail"]


async def until_connected(caller: RunbookCaller, name: str, connection: str, granted: bool = True) -> None:
    grants, end = caller.api.context.runbooks.turns.grants, time.monotonic() + 20
    while (grants.connection_refusal(name, connection) is None) is not granted:
        assert time.monotonic() < end, connection
        await asyncio.sleep(0.01)


async def test_tables_of_tenants_do_not_collide_unless_their_ids_do(
    callers: dict[str, RunbookCaller], registry_folder: Path
) -> None:
    operator = callers["operator"]
    await operator.publish(text("acme moves", "shared"))
    await operator.publish(text("acme.moves", "shared"))
    for tenant in ("acme-moves", "ac-me", "ac_me"):
        grant(registry_folder, tenant, "{workers: [shared]}")
    await until_granted(operator, "ac_me.x")
    await operator.publish(text("acme-moves.x", "shared"))
    await operator.publish(text("ac-me.x", "shared"))
    answer = await operator.client.post("/v1/runbooks", json={"yaml": text("ac_me.x", "shared")})
    assert "runbook ac-me.x has the same table name" in operator.api.assert_problem(answer, 409, "CONFLICT")["detail"]


# --- Workers, and grants that are withdrawn --------------------------------------------------------------------------


async def test_workers_of_a_tenant_take_only_its_own_jobs(callers: dict[str, RunbookCaller]) -> None:
    acme, rival = callers["acme"], callers["rival"]
    await acme.publish(text("acme.moves"))
    batch = await acme.create("ann", runbook="acme.moves")
    await callers["operator"].publish(text("moves", "shared"))
    for caller, worker in ((acme, "rival-mover"), (acme, "shared"), (rival, "acme-mover"), (callers["ungranted"], "x")):
        refused = await caller.client.post("/v1/worker-jobs:pull", json={"workerId": worker})
        caller.api.assert_problem(refused, 403, "FORBIDDEN", "/workerId")
    answer = await rival.client.post("/v1/worker-jobs:pull", json={"workerId": "rival-mover"})
    assert "known workers: none" in rival.api.assert_problem(answer, 422, "ENVELOPE_INVALID")["detail"]
    job = (await acme.post("/v1/worker-jobs:pull", {"workerId": "acme-mover", "wait_seconds": 10}))["jobs"][0]
    tokens = {"jobIds": [job["jobId"]], "tokens": [job["correlationData"]["token"]]}
    assert await rival.post("/v1/worker-jobs:renew", tokens) == {"renewed": [False]}
    assert await acme.post("/v1/worker-jobs:renew", tokens) == {"renewed": [True]}
    assert await rival.results(succeed(job)) == [{"jobId": job["jobId"], "outcome": "UNKNOWN"}]
    assert await acme.results(succeed(job)) == [{"jobId": job["jobId"], "outcome": "APPLIED"}]
    assert (await acme.batch(batch))["status"] == "completed"


async def until_granted(caller: RunbookCaller, name: str, granted: bool = True, worker: str = "shared") -> None:
    grants, end = caller.api.context.runbooks.turns.grants, time.monotonic() + 20
    while (grants.worker_refusal(name, worker) is None) is not granted:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_a_withdrawn_worker_gets_no_more_jobs_and_a_retry_goes_on(
    callers: dict[str, RunbookCaller], registry_folder: Path
) -> None:
    acme = callers["acme"]
    await acme.publish(text("acme.moves"))
    batch = await acme.create("ann", runbook="acme.moves", advance="manual")
    grant(registry_folder, "acme", None)
    await until_granted(acme, "acme.moves", False, "acme-mover")
    await acme.act(batch, "advance")
    shown = await acme.until(batch, lambda one: one["status"] == "failed")
    assert shown["unsuccessful"]["members"][0]["error"] == (
        "the job cannot be sent: the tenant acme may not use the worker acme-mover: grant it in the tenant's file in"
        " the registry, under runbooks.workers"
    )
    refused = await acme.client.post("/v1/worker-jobs:pull", json={"workerId": "acme-mover"})
    acme.api.assert_problem(refused, 403, "FORBIDDEN")
    grant(registry_folder, "acme", GRANTS["acme"])
    await until_granted(acme, "acme.moves", True, "acme-mover")
    await acme.act(batch, "retry")
    jobs = (await acme.post("/v1/worker-jobs:pull", {"workerId": "acme-mover", "wait_seconds": 10}))["jobs"]
    assert [job["functionName"] for job in jobs] == ["A"]


async def test_a_withdrawn_connection_is_read_no_more_and_changes_nobody(
    callers: dict[str, RunbookCaller], registry_folder: Path, tmp_path: Path
) -> None:
    acme, members = callers["acme"], tmp_path / "members.csv"
    members.write_text("Upn\nann\n")
    (tmp_path / "sources.env").write_text(f"LUCIUS_SOURCE_ACME={members}\n")
    await acme.publish(text("acme.moves", "shared", CSV_SOURCE.replace("CONNECTION", "LUCIUS_SOURCE_ACME")))
    assert (await acme.post("/v1/runbooks/acme.moves:preview"))["members"] == 1
    await acme.until_source("acme.moves", "ok")
    grant(registry_folder, "acme", "{workers: [shared]}")
    shown = await acme.until_source("acme.moves", "failed")
    told = (
        "the tenant acme may not use the connection LUCIUS_SOURCE_ACME: grant it in the tenant's file in the registry"
    )
    assert shown["detail"].startswith(told)
    for act in ("preview", "dry-run"):
        answer = await acme.client.post(f"/v1/runbooks/acme.moves:{act}")
        assert acme.api.assert_problem(answer, 422, "SOURCE_FAILED")["detail"].startswith(told)
    [batch] = (await acme.get("/v1/batches"))["items"]
    assert batch["members"]["active"] == 1


# --- The console -----------------------------------------------------------------------------------------------------


async def test_the_console_shows_a_tenant_its_own(api: Api, callers: dict[str, RunbookCaller]) -> None:
    acme = callers["acme"]
    await acme.publish(text("acme.moves"))
    own = await acme.create("ann", runbook="acme.moves", start=LATER)
    await callers["operator"].publish(text("moves", "shared"))
    others = await callers["operator"].create("ann", runbook="moves", start=LATER)
    front = create_front(api.context, console_routes(api.context))
    async with new_client(api.context, None) as client:
        client._transport = httpx.ASGITransport(app=front)
        await client.post("/console/sign-in", data={"key": key_of("acme")})
        for path in ("/runbooks", "/batches"):
            shown = (await client.get(f"/console{path}")).text
            assert "acme.moves" in shown
            assert ">moves<" not in shown
            assert f"/batches/{others}" not in shown
        for path in ("/runbooks/acme.moves", f"/batches/{own}", f"/batches/{own}/members", f"/batches/{own}/grid"):
            assert (await client.get(f"/console{path}")).status_code == 200, path
        for path in (
            "/runbooks/moves",
            f"/batches/{others}",
            f"/batches/{others}/export",
            "/publish-runbook?name=moves",
        ):
            assert (await client.get(f"/console{path}")).status_code == 404, path


async def test_followers_are_told_of_their_tenants_batches(api: Api, callers: dict[str, RunbookCaller]) -> None:
    changes = api.context.changes
    with changes.following(frozenset({"batches", "batch:1", "batch:2"}), lambda tenant: tenant == "acme") as follower:
        await callers["operator"].publish(text("rival.moves", "rival-mover"))
        await callers["operator"].create("ann", runbook="rival.moves", start=LATER)
        await callers["acme"].publish(text("acme.moves"))
        await callers["acme"].create("ann", runbook="acme.moves", start=LATER)
        assert set(await follower.next(20)) == {"batches", "batch:2"}
