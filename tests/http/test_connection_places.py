"""Places for connections: idle ones give way, a peer has its share, and health checks and callbacks have a reserve."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.api.conftest import clean_environment
from tests.http.conftest import KEY, Http, Start, Wire, head

from lucius.api.admission import Admission, trusted_proxies
from lucius.settings import Settings, SettingsError
from lucius.usecases import waits

FEW = {
    "connections_max": 8,
    "connections_per_peer_max": 8,
    "connections_reserved": 3,
    "ledger": "memory",
    "bus": "memory",
}
AUTH = {"Authorization": f"Bearer {KEY}"}
PULL = b'{"service": "ocr", "wait_seconds": 60}'


@pytest.fixture(autouse=True)
def any_share_of_held_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long polls serve as requests that are being worked on, here on every connection there is."""
    monkeypatch.setattr(waits, "HELD_SHARE_MAX", 1.0)


async def busy(http: Http, count: int, source: str = "127.0.0.1") -> list[Wire]:
    """Connections whose requests are being worked on."""
    wires = [await http.wire(source) for _ in range(count)]
    for wire in wires:
        await wire.send(head("POST", "/v1/directives:pull", Content_Length=str(len(PULL)), **AUTH) + PULL)
    await asyncio.sleep(0.3)
    return wires


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HT", head("POST", "/v1/callbacks/ack", Content_Length="9") + b"{"]
)
async def test_connection_that_keeps_the_server_waiting_gives_way(start: Start, sent: bytes) -> None:
    http = await start(**FEW)
    for _ in range(60):
        wire = await http.wire()
        await wire.send(sent)
    assert (await http.call()).status == 200
    assert (await http.call("/v1/jobs", **AUTH)).status == 200
    assert http.connections <= 8 + 3


async def test_longest_idle_connection_gives_way_first(start: Start) -> None:
    http = await start(**FEW | {"connections_max": 40, "connections_per_peer_max": 40})
    wires = [await http.wire() for _ in range(40)]
    for wire in reversed(wires):
        assert await wire.is_open()
        await asyncio.sleep(0.01)
    assert (await http.call()).status == 200
    assert await wires[0].is_open()
    assert await wires[-1].rest() == b""


async def test_request_in_work_gives_way_to_nobody(start: Start) -> None:
    http = await start(**FEW)
    wires = await busy(http, 8)
    answer = await http.call("/v1/jobs", **AUTH)
    answer.assert_problem(503, "UNAVAILABLE")
    assert answer.headers["connection"] == "close"
    assert all(not wire.reader.at_eof() for wire in wires)
    wires[0].close()
    await http.until(lambda: http.connections <= 7)
    assert (await http.call("/v1/jobs", **AUTH)).status == 200


async def test_health_checks_and_callbacks_have_a_reserve(start: Start) -> None:
    http = await start(**FEW)
    await busy(http, 8)
    assert (await http.call("/healthz")).status == 200
    assert (await http.call("/readyz")).status == 200
    for path, body in (("/v1/callbacks/ack", b"{}"), ("/v1/callbacks:batch", b'{"callbacks":[0]}')):
        wire = await http.wire()
        answer = await wire.post(path, body)
        assert answer.status in (200, 422), answer.body
        assert answer.headers["connection"] == "close", "the next request may find a place of its own"
        assert await wire.rest() == b""


async def test_connections_that_only_wait_give_way_in_the_reserve_too(start: Start) -> None:
    http = await start(**FEW)
    await busy(http, 8)
    for _ in range(20):
        await http.wire()
    assert (await http.call("/healthz")).status == 200
    assert http.connections <= 11


async def test_nobody_is_let_in_beyond_the_reserve(start: Start) -> None:
    http = await start(**FEW | {"connections_reserved": 0})
    await busy(http, 8)
    wire = await http.wire()
    (await wire.answer()).assert_problem(503, "UNAVAILABLE")
    assert await wire.rest() == b""


async def test_one_peer_has_its_share_of_places(start: Start) -> None:
    http = await start(**FEW | {"connections_per_peer_max": 4})
    await busy(http, 4)
    (await http.call("/v1/jobs", **AUTH)).assert_problem(503, "UNAVAILABLE")
    assert (await http.call("/healthz")).status == 200
    assert (await http.call("/v1/jobs", source="127.0.0.2", **AUTH)).status == 200


async def test_trusted_proxy_has_no_share(start: Start) -> None:
    http = await start(**FEW | {"connections_per_peer_max": 4}, trusted_proxies=("10.0.0.1", "127.0.0.0/8"))
    await busy(http, 7)
    assert (await http.call("/v1/jobs", **AUTH)).status == 200


@pytest.mark.parametrize("text", ["proxy.example.org", "10.0.0.1/8", "300.1.1.1"])
def test_proxy_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="LUCIUS_TRUSTED_PROXIES"):
        trusted_proxies(Settings(trusted_proxies=(text,)))


@pytest.mark.parametrize("name", ["connections_max", "header_seconds", "bodies_bytes_max"])
def test_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"LUCIUS_{name.upper()}"):
        Admission(Settings(**{name: 0}), str, lambda _: None)


LIMIT_OPEN_FILES = """
import logging, resource
from lucius.api.serving import _allow_descriptors

logging.basicConfig()
for hard in (4096, 512):
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    _allow_descriptors(2356)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_limit_on_open_files_is_raised_as_far_as_it_goes() -> None:
    done = subprocess.run([sys.executable, "-c", LIMIT_OPEN_FILES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4096", "512"]
    (warning,) = done.stderr.splitlines()
    assert "may open 512 files but needs 2356" in warning


DESCRIPTORS = 160
WITH_FEW_DESCRIPTORS = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_idle_connections_give_way_before_descriptors_run_out(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lucius.cli.main", "up", "--port", "0", "--no-services", "--data", str(tmp_path)]
    said = tmp_path / "said.txt"
    with said.open("wb") as out:
        environment = clean_environment(LUCIUS_API_KEY=KEY, LUCIUS_MANAGEMENT_PORT="off")
        server = subprocess.Popen(
            [sys.executable, "-c", WITH_FEW_DESCRIPTORS, *command], stdout=out, stderr=out, env=environment
        )
    wires: list[socket.socket] = []
    try:
        port = int(wait_for(said, r"LUCIUS is up at http://127.0.0.1:(\d+)"))
        wires = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(2 * DESCRIPTORS)]
        for _ in range(20):
            answer = httpx.get(f"http://127.0.0.1:{port}/v1/jobs", headers=AUTH, timeout=30)
            assert answer.status_code == 200, answer.text
    finally:
        for wire in wires:
            wire.close()
        server.terminate()
        server.wait(30)
    assert "Too many open files" not in said.read_text()


def wait_for(said: Path, pattern: str) -> str:
    end = time.monotonic() + 60
    while (found := re.search(pattern, said.read_text())) is None:
        assert time.monotonic() < end, said.read_text()
        time.sleep(0.02)
    return found[1]
