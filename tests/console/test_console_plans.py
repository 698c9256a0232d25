"""The plan of every statement that any page of the console reads with, over many jobs: no page reads a whole table."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from tests.console import console_addresses as addresses
from tests.console.console_server import ADMIN, INVOICE, SHIPPED
from tests.console.recorded_reads import RecordedReads
from tests.sql import many_jobs
from tests.sql.many_jobs import JOBS, fill, job_id_of
from tests.sql.test_list_plans import _have_a_million_rows, _nodes, plan_of, run

from lucius.api.app import create_front
from lucius.bootstrap import open_app
from lucius.console import console_routes
from lucius.settings import Settings
from lucius.sql.database import Database, Fetch, Script
from lucius.sql.figure_tables import COUNTS_OF_PAST_HOURS
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.usecases.bulk_operations import SAMPLE_MAX

FILLED = (*(table for table in many_jobs.TABLES if table != "batch_members"), "job_counts")
LARGE = (*FILLED, "batch_members", "job_events", "job_attempts", "claims", "messages", "step_executions", "worker_jobs")
PARTIAL = ("messages_dead",)
"""Indexes of the few rows that matter: to go through one is not to go through its table."""
READ_MAX = JOBS // 10
"""Rows that one step of a plan may read: open and failed jobs are a fortieth of all, a page has 50."""
BATCH_READ_MAX = JOBS // 2
"""The batch that is shown has half of all members, and reads its own."""
FILTERS = (
    "tenant_id=tenant-3", "tenant_id=early&status=SUCCEEDED", "status=QUEUED", "status=FAILED_FINAL",
    "waits_for=RESULT", "request_type=RARE",
    "created_from=2020-01-01T00:00:00Z&created_to=2021-01-01T00:00:00Z", "error_signature=x",
    "correlation_id=order-7", "idempotency_key=k&tenant_id=tenant-3", "payload=customer=c-7",
    f"cursor={job_id_of(JOBS // 2)}", f"status=FAILED_FINAL&cursor={job_id_of(JOBS // 2)}",
)  # fmt: skip
"""Of the list of jobs; `tests/sql/test_list_plans.py` has every combination."""
REDRIVES = ("", "&error_signature=x", "&tenant_id=tenant-3", "&created_from=2020-01-01T00:00:00Z")
"""What is previewed."""
ENVELOPE = {
    "tenant_id": "tenant-3", "request_type": "OCR", "input_ref": "https://documents.example/1.pdf",
    "output_ref": "https://documents.example/1.json", "payload": {"language": "en"}, "schema_version": "1",
}  # fmt: skip


async def show_every_page(settings: Settings, reads: RecordedReads) -> None:
    async with open_app(settings) as context, consoles(context) as client:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        job = (await client.post("/v1/commands", json=ENVELOPE, headers=headers)).json()["jobId"]
        body = {"action": "pause", "filter": {"tenant_id": "nobody"}, "reason": "x"}
        operation = (await client.post("/v1/operations", json=body, headers=headers)).json()["operationId"]
        batch, member = await make_batch(client, headers)
        rehearsed = await client.post("/v1/runbooks/plans:rehearse", json={"count": 1}, headers=headers)
        values = addresses.values_of(
            job_id=job, operation_id=operation, batch_id=batch, member_id=member, runbook="plans",
            rehearsal_id=str(rehearsed.json()["rehearsal_id"]), tenant="tenant-3",
        )  # fmt: skip
        shown = addresses.pages(values) | addresses.downloads(values)
        shown |= {f"/jobs?{filters}": f"/jobs?{filters}" for filters in FILTERS}
        shown |= {(path := f"/operations/new?action=redrive{more}"): path for more in REDRIVES}
        for declared, path in shown.items():
            with reads.showing(declared):
                answer = await client.get(f"/console{path}")
            assert answer.status_code in (200, 303), (path, answer.text)
    assert all(reads.by_page[path] for path in ("/", "/jobs", "/jobs/{job_id}", "/dead-letters", "/batches"))


@asynccontextmanager
async def consoles(context: Any) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_front(context, console_routes(context)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
        assert (await client.post("/console/sign-in", data={"key": ADMIN})).status_code == 303
        yield client


async def make_batch(client: httpx.AsyncClient, headers: dict[str, str]) -> tuple[str, str]:
    runbook = (
        "name: plans\ndata_source: {type: manual, primary_key: Upn}\nphases:\n  - name: first\n    offset: T-0\n"
        "    steps:\n      - {name: one, worker_id: w, function: Do, params: {}}\n"
    )
    assert (await client.post("/v1/runbooks", json={"yaml": runbook}, headers=headers)).status_code < 300
    body = {"runbook": "plans", "csv": "Upn\na\nb\n", "advance": "manual"}
    batch = (await client.post("/v1/batches", json=body, headers=headers)).json()["batch_id"]
    members = (await client.get(f"/v1/batches/{batch}/members", headers=headers)).json()["items"]
    return str(batch), str(members[0]["member_id"])


def settings_of(ledger: str, folder: Path) -> Settings:
    registry = folder / "registry"
    shutil.copytree(SHIPPED, registry)
    (registry / "protocols" / "invoice.yaml").write_text(INVOICE)
    keys = ("k1:0123456789abcdef0123456789abcdef",)
    return Settings(
        ledger=ledger, api_key=ADMIN, data=str(folder), callback_keys=keys, management_port="off",
        registry=str(registry),
    )  # fmt: skip


async def fill_counts(database: Database) -> None:
    """As the last week of two tenants leaves them: a row for each in every minute and every hour."""
    last = time.time_ns() // 60_000_000_000
    await run(database, "DELETE FROM job_counts")
    await run(
        database,
        f"""INSERT INTO job_counts (minute, tenant_id, outcome, jobs)
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {JOBS})
        SELECT {last} - n / 2, 'tenant-' || (n % 2), 'ACCEPTED', 5 FROM numbers""",
    )
    await run(database, COUNTS_OF_PAST_HOURS)


async def test_sqlite_reads_every_page_through_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, reads = tmp_path / "plans.db", RecordedReads()
    async with SqliteDatabase(file) as database:
        await upgrade(database)
        await fill(database)
        await fill_counts(database)
    reads.record(monkeypatch, SqliteDatabase)
    await show_every_page(settings_of(f"sqlite:///{file}", tmp_path), reads)
    wrong: dict[str, Any] = {}
    async with SqliteDatabase(file) as database:
        for page, fetches in reads.by_page.items():
            for fetch in fetches.values():
                plan = await plan_of(database, "EXPLAIN QUERY PLAN", fetch)
                if any(reads_all(step, fetch, plan) for step in plan):
                    wrong[f"{page}: {fetch.sql}"] = plan
    assert not wrong
    previewed = reads.by_page[f"/operations/new?action=redrive{REDRIVES[0]}"].values()
    named = [len(arg) for fetch in previewed for arg in fetch.args if isinstance(arg, list)]
    assert max(named) <= SAMPLE_MAX, "jobs to act on are counted, only the first are read"


def reads_all(step: str, fetch: Fetch, plan: list[str]) -> bool:
    """Whether a step goes through a large table. In the order of an index, and only as far as a limit, it may."""
    if not any(step.startswith(f"SCAN {table}") for table in LARGE) or any(name in step for name in PARTIAL):
        return False
    return "USING" not in step or "LIMIT" not in fetch.sql or any("TEMP B-TREE" in other for other in plan)


async def nodes_of(database: Database, fetch: Fetch, seq_scans: str = "on") -> list[dict[str, Any]]:
    def script() -> Script[Any]:
        yield Fetch("SELECT set_config('enable_seqscan', $1, true)", [seq_scans])
        rows = yield Fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {fetch.sql}", fetch.args)
        return json.loads(rows[0][0])

    return list(_nodes((await database.read(script))[0]["Plan"]))


def scans(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"}


async def test_postgres_reads_no_more_of_any_page_than_it_shows(
    postgres_database: PostgresDatabase, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are shown before the tables are filled: no program could read these rows."""
    reads = RecordedReads()
    reads.record(monkeypatch, PostgresDatabase)
    await show_every_page(settings_of(postgres_url, tmp_path), reads)
    await run(
        postgres_database, "TRUNCATE job_states, job_specs, job_search_values, batch_changes, batch_members CASCADE"
    )
    await fill(postgres_database)
    await many_jobs.fill_other_tables(postgres_database)
    await fill_counts(postgres_database)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("VACUUM ANALYZE")
    await _have_a_million_rows(connection)
    await connection.close()
    wrong = {}
    for page, fetches in reads.by_page.items():
        for fetch in fetches.values():
            nodes = await nodes_of(postgres_database, fetch)
            read = max(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in nodes)
            # A table that is empty here is scanned because it is; what matters is whether an index could be used.
            able = [] if "WHERE" not in fetch.sql else await nodes_of(postgres_database, fetch, seq_scans="off")
            if "GROUP BY error_signature" in fetch.sql:
                kinds = {node["Node Type"] for node in nodes if node.get("Relation Name") == "job_states"}
                assert kinds == {"Index Only Scan"}, "ten thousand failed jobs are grouped without reading their rows"
            scanned = (scans(nodes) & set(FILLED)) | (scans(able) & set(LARGE))
            if scanned or read > (BATCH_READ_MAX if "batch_members" in fetch.sql else READ_MAX):
                kinds = [(node["Node Type"], node.get("Index Name"), node["Actual Rows"]) for node in nodes]
                wrong[f"{page}: {fetch.sql}"] = (read, scanned, kinds)
    assert not wrong, "\n".join(f"{name}\n    {plan}" for name, plan in wrong.items())
