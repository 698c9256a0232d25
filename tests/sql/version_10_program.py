"""What a program of schema version 10 is to its database, in a process of its own: `URL`.

It uses nothing of this program, and does what the recorded one did: a pool with its settings and its session name, no
lock; it refuses any version but its own when it starts, and never looks at the version again. For each line on standard
input it moves a job that is due, in one transaction over the tables of version 10, and answers with a line.
"""

from __future__ import annotations

import asyncio
import sys

import asyncpg

VERSION = 10
SESSION_SETTINGS = {
    "synchronous_commit": "on", "idle_in_transaction_session_timeout": "30s", "application_name": "lucius",
    "jit": "off",
}  # fmt: skip
CURRENT = "SELECT COALESCE(MAX(version), 0) FROM schema_versions"
DUE = "SELECT job_id FROM jobs WHERE wake_at IS NOT NULL AND engine = 'outbox' ORDER BY wake_at LIMIT 1"
LOCK = "SELECT revision FROM jobs WHERE job_id = $1 FOR UPDATE"
MOVE = "UPDATE jobs SET revision = revision + 1 WHERE job_id = $1 RETURNING revision"


async def main(url: str) -> int:
    pool = await asyncpg.create_pool(
        url, min_size=1, max_size=2, timeout=10, command_timeout=30, server_settings=SESSION_SETTINGS
    )
    async with pool:
        current = await pool.fetchval(CURRENT)
        if current != VERSION:
            print(f"is at schema version {current}, this program needs {VERSION}", flush=True)
            return 4
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            async with pool.acquire() as connection, connection.transaction():
                job_id = await connection.fetchval(DUE)
                await connection.fetchval(LOCK, job_id)
                revision = await connection.fetchval(MOVE, job_id)
            print(f"moved {job_id} {revision}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
