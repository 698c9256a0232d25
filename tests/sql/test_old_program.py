"""A program of schema version 10 at work, in a process of its own, while this one is asked to upgrade its database."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from tests.sql import version_10

from lucius.sql import schema
from lucius.sql.postgres import PostgresDatabase

PROGRAM = Path(__file__).with_name("version_10_program.py")
SECONDS_MAX = 60.0
REFUSED = 4


class OldProgram:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def says(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS_MAX):
            return (await self.process.stdout.readline()).decode().strip()

    async def moves_a_job(self) -> tuple[str, int]:
        assert self.process.stdin is not None
        self.process.stdin.write(b"move\n")
        answer = (await self.says()).split()
        assert answer[0] == "moved", answer
        return answer[1], int(answer[2])


@asynccontextmanager
async def old_program(url: str) -> AsyncIterator[OldProgram]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), url, stdin=pipe, stdout=pipe)
    try:
        yield OldProgram(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def upgrade_by_command(url: str) -> tuple[int, str]:
    """`lucius db upgrade`, as an operator runs it."""
    program = Path(sys.executable).with_name("lucius")
    settings = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    process = await asyncio.create_subprocess_exec(
        str(program), "db", "upgrade", env=settings | {"LUCIUS_LEDGER": url}, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(SECONDS_MAX):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, " ".join(output.decode().split())


@pytest.fixture
async def url_of_version_10(postgres_url: str) -> str:
    """A database as the program of version 10 left it: jobs in every state, a batch at work."""
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    finally:
        await connection.close()
    async with PostgresDatabase(postgres_url, pool_max=2) as database:
        await version_10.make(database)
    return postgres_url


async def test_upgrade_is_refused_while_a_program_of_version_10_runs(url_of_version_10: str) -> None:
    async with old_program(url_of_version_10) as running:
        assert await running.says() == "ready"
        job_id, revision = await running.moves_a_job()
        code, said = await upgrade_by_command(url_of_version_10)
        assert code == REFUSED
        assert re.search(r"the upgrade to schema version 1\d needs every running program .* pid \d+ \(lucius[ )]", said)
        assert "Stop them, then run this again." in said
        assert await running.moves_a_job() == (job_id, revision + 1), "nothing was taken away from it"
    async with PostgresDatabase(url_of_version_10, pool_max=2) as database:
        assert await schema.current_version(database) == 10
    code, said = await upgrade_by_command(url_of_version_10)
    assert (code, f"at version {schema.VERSION}" in said) == (0, True), said
    async with old_program(url_of_version_10) as again:
        assert await again.says() == f"is at schema version {schema.VERSION}, this program needs 10"
        assert await again.process.wait() == REFUSED
    async with PostgresDatabase(url_of_version_10, pool_max=2) as database:
        await schema.verify(database)
    connection = await asyncpg.connect(url_of_version_10)
    try:
        assert await connection.fetchval("SELECT revision FROM jobs WHERE job_id = $1", job_id) == revision + 1
    finally:
        await connection.close()
