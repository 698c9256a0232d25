"""A running server with its registry in App Configuration: a change, a bad change, an outage, a restart during the
outage, and its end, each seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.appconfig_server import running
from tests.crash.management import look, metrics_of
from tests.crash.processes import API_KEY, Process, free_port

from lucius.registries.appconfig.keys import SENTINEL
from lucius.testing.registry_suite import OTHER, PROTOCOL

WAIT_SECONDS = 30.0


def until(holds: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


def protocols(server: Process) -> dict[str, int]:
    address = f"http://127.0.0.1:{server.port}/v1/protocols"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {API_KEY}"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return {item["id"]: item["version"] for item in json.load(answer)["items"]}


def registry_check(server: Process) -> str:
    """What `/readyz` says of the registry, beginning with `ok` if nothing is wrong."""
    check = look(server)[1]["checks"]["registry"]
    return f"{'ok ' if check['ok'] else ''}{check['detail']}"


def push(tmp_path: Path, server: Process, settings: dict[str, str], *texts: str) -> str:
    """What `lucius registry push` says about a folder with these protocols."""
    folder = tmp_path / "registry" / "protocols"
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.yaml").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    environment |= settings | {"LUCIUS_API_KEY": API_KEY, "LUCIUS_URL": f"http://127.0.0.1:{server.port}"}
    command = [sys.executable, "-m", "lucius.cli.main", "registry", "push", str(folder.parent), "--yes"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_running_server_sees_changes_survives_bad_ones_outages_and_restarts_in_them(tmp_path: Path) -> None:
    with running() as store:
        store.put("lucius:protocols:SCAN:1", PROTOCOL)
        store.put(SENTINEL, "1")
        settings = {
            **store.settings,
            "LUCIUS_APPCONFIG_POLL_SECONDS": "0.1",
            "LUCIUS_LEDGER": "memory",
            "LUCIUS_BUS": "memory",
            "LUCIUS_DATA": str(tmp_path / "data"),
            "LUCIUS_MANAGEMENT_PORT": "0",
        }
        with Process("up", "--no-services", settings=settings, folder=tmp_path, port=free_port()) as server:
            assert protocols(server) == {"SCAN": 1}
            assert registry_check(server).startswith("ok version")

            pushed = push(tmp_path, server, settings, PROTOCOL, PROTOCOL.replace("version: 1", "version: 2"))
            assert "Impact of SCAN version 2 (version 1 is in force):" in pushed
            until(lambda: protocols(server) == {"SCAN": 2}, "the change")

            store.put("lucius:protocols:FAX:1", OTHER.replace("service", "sevice"))
            store.put(SENTINEL, "3")
            until(lambda: "lucius:protocols:FAX:1, line 7" in registry_check(server), "the bad key in /readyz")
            assert protocols(server) == {"SCAN": 2}
            assert "\nlucius_registry_problems 1.0\n" in metrics_of(server)

            store.put("lucius:protocols:FAX:1", OTHER)
            store.put(SENTINEL, "4")
            until(lambda: protocols(server) == {"SCAN": 2, "FAX": 1}, "the mended change")
            until(lambda: registry_check(server).startswith("ok"), "readiness")

            store.stop()
            until(lambda: "unreachable" in registry_check(server), "the outage in /readyz")
            assert protocols(server) == {"SCAN": 2, "FAX": 1}

            server.kill()
            server.start()
            server.wait_ready()
            assert protocols(server) == {"SCAN": 2, "FAX": 1}
            assert "started with the cache" in registry_check(server)

            store.start()
            store.put("lucius:protocols:FAX:2", OTHER.replace("version: 1", "version: 2"))
            store.put(SENTINEL, "5")
            until(lambda: protocols(server) == {"SCAN": 2, "FAX": 2}, "the change after the outage")
            until(lambda: registry_check(server).startswith("ok"), "readiness after the outage")
            server.terminate()
        secret = store.server.connection_string.rpartition("Secret=")[2]
        assert secret not in server.log
