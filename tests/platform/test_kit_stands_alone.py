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
          "asyncpg", "httptools", "click", "rich", "opentelemetry", "numpy", "temporalio"}

OURS = {"client", "kit", "platform", "azure", "public_addresses"}

class Guard:
    def find_spec(self, name, path=None, target=None):
        first, _, rest = name.partition(".")
        if first in SERVER or (first == "lucius" and rest and rest.split(".")[0] not in OURS):
            raise ImportError(f"the kit must not import {name}")
        return None

sys.meta_path.insert(0, Guard())
"""
REHEARSAL = """
import pathlib
from lucius.platform import PlatformService, Result, rehearse

service = PlatformService("ocr")

@service.step("PLAIN")
def plain(directive, workspace):
    text = workspace.read_input().decode().upper()
    return Result({"characters": len(text)}, output=workspace.write("ocr/output.txt", text))

@service.step("AWAITED")
async def awaited(directive, workspace, attempt):
    attempt.report(0.5, "half")
    return {"payload": directive.payload}

folder = pathlib.Path(sys.argv[1])
made = rehearse(service, "PLAIN", folder, input="text")
other = rehearse(service, "AWAITED", folder, payload={"a": 1})
print(json.dumps([made.result, made.output.read_text(), other.result]))
"""
SERVING = """
import asyncio, pathlib
from lucius.platform import PlatformService, PlatformSettings

service = PlatformService("ocr")
service.step("OCR")(lambda directive, workspace: None)

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.3, stop.set)
    for store in ("sqlite", "workspace", "memory"):
        settings = PlatformSettings(orchestrator_url="http://127.0.0.1:9", state=sys.argv[1], store=store)
        await service.serve(stop, settings)
    print(json.dumps("served"))

asyncio.run(main())
"""
LISTING = """
before = set(sys.modules)
import lucius.platform
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def run(script: str, folder: Path) -> Any:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", GUARD + script, str(folder)],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=folder,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_step_is_rehearsed_without_the_servers_packages(tmp_path: Path) -> None:
    made, output, other = run(REHEARSAL, tmp_path)
    assert made["artifacts"] == {"characters": 4}
    assert output == "TEXT"
    assert other["artifacts"] == {"payload": {"a": 1}}


def test_a_service_runs_without_the_servers_packages(tmp_path: Path) -> None:
    assert run(SERVING, tmp_path) == "served"


def test_the_guard_of_these_tests_stops_what_it_is_for(tmp_path: Path) -> None:
    for forbidden in ("import lucius.domain", "import msgspec", "from lucius.cli import main"):
        command = [sys.executable, "-c", f"{GUARD}\n{forbidden}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
        assert ended.returncode == 1
        assert "the kit must not import" in ended.stderr


def test_importing_the_kit_brings_no_more_than_it_needs(tmp_path: Path) -> None:
    loaded = run(LISTING, tmp_path)
    ours = {name for name in loaded if name.startswith("lucius")}
    assert {name.partition(".")[2].partition(".")[0] for name in ours} == {*("", "client", "kit", "platform", "azure")}
    packages = {name.partition(".")[0] for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    wanted = {"lucius", "prometheus_client"}
    brought_by_httpx = {"anyio", "certifi", "h11", "httpcore", "idna", "sniffio", "typing_extensions", "socksio"}
    brought_by_httpx |= {"brotli", "brotlicffi", "zstandard", "h2", "hpack", "hyperframe", "_brotli"}
    assert packages - brought_by_httpx == wanted
