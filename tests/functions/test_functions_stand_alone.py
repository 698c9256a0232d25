"""The kit needs nothing of the server: neither its modules nor the packages that the server installs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

GUARD = """
import json, sys

SERVER = {"apsw", "fastapi", "msgspec", "starlette", "uvicorn", "yaml", "jsonschema_rs", "pypdf", "jwt",
          "asyncpg", "httptools", "click", "rich", "opentelemetry", "numpy", "temporalio", "sqlalchemy"}

class Guard:
    def find_spec(self, name, path=None, target=None):
        first, _, rest = name.partition(".")
        if first in SERVER or (first == "lucius" and rest and rest.split(".")[0] not in {"client", "kit", "functions"}):
            raise ImportError(f"the kit must not import {name}")
        return None

sys.meta_path.insert(0, Guard())
"""
SERVING = """
import asyncio
from lucius.functions import FunctionWorker, WorkerSettings

worker = FunctionWorker("exchange")
worker.function("Work")(lambda: {"a": 1})

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, stop.set)
    left = await worker.serve(stop, WorkerSettings(url="http://127.0.0.1:9"))
    print(json.dumps([left, (await worker.call("Work"))["result"]]))

asyncio.run(main())
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", GUARD + script]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=folder, check=False)


def test_a_worker_runs_without_the_servers_packages(tmp_path: Path) -> None:
    ended = run(SERVING, tmp_path)
    assert ended.returncode == 0, ended.stderr
    served: Any = json.loads(ended.stdout)
    assert served == [[], {"a": 1}]


def test_the_guard_of_this_test_stops_what_it_is_for(tmp_path: Path) -> None:
    for forbidden in ("import lucius.platform", "import msgspec"):
        ended = run(f"\n{forbidden}", tmp_path)
        assert ended.returncode == 1
        assert "the kit must not import" in ended.stderr
