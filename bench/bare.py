"""The limits, measured in the same run with the same client: an empty route of each framework, and SQLite alone.

`python -m bench.bare fastapi --port P` serves one empty route that takes a command and answers 202, under the settings
of uvicorn that the server itself runs with.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

GROUP = 100
FRAMEWORKS = ("fastapi", "starlette")


class SqliteResult(msgspec.Struct, kw_only=True):
    commits_per_second: float
    """Transactions of one row each."""
    grouped_rows_per_second: float
    """Rows, in transactions of 100."""


class Command(BaseModel):
    tenant_id: str
    request_type: str
    input_ref: str
    output_ref: str
    payload: dict[str, Any]
    schema_version: str
    idempotency_key: str | None = None


def fastapi_app() -> ASGIApp:
    app = FastAPI()

    @app.post("/", status_code=202)
    async def accept(command: Command) -> dict[str, str]:
        return {"status": "QUEUED"}

    return app


def starlette_app() -> ASGIApp:
    async def accept(request: Request) -> Response:
        await request.body()
        return Response(b'{"status":"QUEUED"}', 202, media_type="application/json")

    return Starlette(routes=[Route("/", accept, methods=["POST"])])


def measure_sqlite(folder: Path, seconds: float) -> SqliteResult:
    """Rows of about a job's size, with keys in time order, durable as the ledger's are."""
    path = folder / "bare.sqlite"
    with closing(apsw.Connection(str(path))) as database:
        database.pragma("journal_mode", "wal")
        database.pragma("synchronous", "full")
        database.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        keys = iter(lambda: time.time_ns().to_bytes(8, "big") + os.urandom(8), b"")
        value = os.urandom(400)

        def insert_group(size: int) -> int:
            rows: Iterator[tuple[bytes, bytes]] = ((next(keys), value) for _ in range(size))
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT INTO rows VALUES (?, ?)", rows)
            database.execute("COMMIT")
            return size

        return SqliteResult(
            commits_per_second=rate(lambda: insert_group(1), seconds),
            grouped_rows_per_second=rate(lambda: insert_group(GROUP), seconds),
        )


def rate(act: Callable[[], int], seconds: float) -> float:
    done, started_at = 0, time.perf_counter()
    while (passed := time.perf_counter() - started_at) < seconds:
        done += act()
    return round(done / passed, 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bare", description=__doc__)
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    app = fastapi_app() if options.framework == "fastapi" else starlette_app()
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=options.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
