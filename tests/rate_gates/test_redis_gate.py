"""Request rates shared through Redis: exact among processes, within a deadline, and what happens without it."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.redis_server import PASSWORD, RedisServer

from lucius import registries
from lucius.bootstrap import open_app
from lucius.bootstrap.rate_gate import open_rate_gate
from lucius.clocks import SystemClock
from lucius.doctor import examine_all
from lucius.domain.errors import CallerError
from lucius.ports.rate_gate import RateGateUnavailable
from lucius.ports.readiness import NotReady
from lucius.rate_gates.redis import RedisRateGate
from lucius.settings import Settings, SettingsError
from lucius.testing.servicebus.certificates import make_certificates
from lucius.usecases import rates
from lucius.usecases.rates import RateLimits


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.end()


@pytest.fixture
def running(server: RedisServer) -> Iterator[RedisServer]:
    """One that the test may kill."""
    yield server
    server.kill()
    server.start()


@pytest.fixture
async def gate(server: RedisServer) -> AsyncIterator[RedisRateGate]:
    async with RedisRateGate(server.url, call_seconds=5.0) as gate:
        await gate._redis.flushall()
        yield gate


async def test_a_bucket_holds_one_seconds_worth(gate: RedisRateGate) -> None:
    first = await gate.take("acme", 5.0, 3)
    assert (first.count, first.retry_after_seconds) == (3, 0.0)
    second = await gate.take("acme", 5.0, 3)
    assert second.count in (2, 3)  # The third may have come meanwhile.
    third = await gate.take("acme", 5.0, 9)
    assert third.count <= 1
    assert 0 < third.retry_after_seconds <= 0.2


async def test_a_rate_below_one_grants_one_and_says_when_the_next(gate: RedisRateGate) -> None:
    assert (await gate.take("acme", 0.1, 1)).count == 1
    refused = await gate.take("acme", 0.1, 1)
    assert refused.count == 0
    assert 9 < refused.retry_after_seconds <= 10


async def test_what_was_used_up_comes_back_with_time(gate: RedisRateGate) -> None:
    assert (await gate.take("acme", 20.0, 20)).count == 20
    await asyncio.sleep(0.3)
    assert 5 <= (await gate.take("acme", 20.0, 20)).count <= 19


async def test_tenants_do_not_share_and_a_full_bucket_is_forgotten(gate: RedisRateGate) -> None:
    for tenant in ("acme", "globex", "ünïcode tenant"):
        assert (await gate.take(tenant, 2.0, 2)).count == 2
    keys = await gate._redis.keys("*")
    assert len(keys) == 3
    for key in keys:
        assert 0 < await gate._redis.pttl(key) <= 2_000


async def test_two_processes_are_granted_no_more_together(server: RedisServer, gate: RedisRateGate) -> None:
    """Exact: 300 questions at once against a bucket of 100 that refills slowly."""
    async with RedisRateGate(server.url, call_seconds=10.0) as other:
        # Capacity is the rate, so a bucket of 100 refills by 100 a second: what came meanwhile is counted too.
        started = time.monotonic()
        grants = await asyncio.gather(*(one.take("acme", 100.0, 1) for one in (gate, other) for _ in range(150)))
        most = 100 + (time.monotonic() - started) * 100 + 1
    granted = sum(grant.count for grant in grants)
    assert 100 <= granted <= most


async def test_a_script_that_the_server_has_forgotten_is_sent_again(gate: RedisRateGate) -> None:
    await gate.take("acme", 5.0, 1)
    await gate._redis.script_flush()
    assert (await gate.take("acme", 5.0, 1)).count == 1


# --- Away ------------------------------------------------------------------------------------------------------------


async def test_a_gate_that_is_away_leaves_each_process_its_own_rate_and_is_told_once(
    running: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "PAUSE_SECONDS", 0.2)
    caplog.set_level(logging.WARNING, "lucius.rates")
    async with RedisRateGate(running.url, call_seconds=5.0) as gate:
        limits = RateLimits(SystemClock(), gate)
        (check,) = limits.checks()
        assert not check.is_vital
        assert (await limits.take("acme", 3.0, 3)).count == 3
        assert PASSWORD not in await check.look()
        running.kill()
        for _ in range(3):
            assert (await limits.take("globex", 1.0)).count in (0, 1)
            await asyncio.sleep(0.1)
        assert (await limits.take("initech", 2.0, 9)).count == 2
        with pytest.raises(NotReady, match="each process holds tenants to their rate by itself") as away:
            await check.look()
        running.start()
        await asyncio.sleep(0.25)
        assert (await limits.take("acme", 3.0, 3)).count == 3
        assert running.url.split("@")[1] in await check.look()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2, told
    assert "is away" in told[0]
    assert "is back" in told[1]
    assert PASSWORD not in str(told) + str(away.value)


async def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    try:
        async with RedisRateGate(f"redis://127.0.0.1:{port}", call_seconds=0.2) as gate:
            limits = RateLimits(SystemClock(), gate)
            started = time.monotonic()
            for _ in range(20):
                await limits.take("acme", 100.0)
            assert time.monotonic() - started < 2, "only the first command waits"
            with pytest.raises(RateGateUnavailable):
                await gate.health()
    finally:
        silent.close()


async def test_a_wrong_password_is_told_without_it(server: RedisServer) -> None:
    async with RedisRateGate(f"redis://:not-the-password@127.0.0.1:{server.port}", call_seconds=5.0) as gate:
        with pytest.raises(RateGateUnavailable, match="the password is refused") as refused:
            await gate.take("acme", 1.0, 1)
    assert "not-the-password" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_over_tls_the_servers_name_and_certificate_are_checked(server: RedisServer, tmp_path: Path) -> None:
    """The package's server has no TLS of its own, so a proxy ends it."""
    certificates = make_certificates("localhost", tmp_path)

    passing: set[asyncio.Task[Any]] = set()

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        passing.add(task)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer), return_exceptions=True)
        for one in (writer, inner_writer):
            one.close()
            with suppress(OSError):
                await one.wait_closed()

    proxy = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=certificates.context)
    port = proxy.sockets[0].getsockname()[1]
    url = f"rediss://:{PASSWORD}@%s:{port}"
    try:
        async with RedisRateGate(url % "localhost", str(certificates.ca_file), call_seconds=5.0) as gate:
            assert (await gate.take("tls", 5.0, 1)).count == 1
        for host, ca_file in (("localhost", ""), ("127.0.0.1", str(certificates.ca_file))):
            async with RedisRateGate(url % host, ca_file, call_seconds=5.0) as gate:
                with pytest.raises(RateGateUnavailable, match="its certificate is not valid"):
                    await gate.health()
    finally:
        proxy.close()
        await asyncio.gather(*passing)


# --- Settings and servers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:6379", "http://:hidden-secret@host", "redis://", "redis://:hidden-secret@host:port"),
        *("redis://:hidden-secret@host/1/2", "rediss://:hidden-secret@host?ssl_cert_reqs=none"),
    ],
)
async def test_an_address_that_cannot_be_used_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(SettingsError, match="LUCIUS_RATE_GATE") as refused:
        async with open_rate_gate(Settings(rate_gate=url)):
            pass
    assert "hidden-secret" not in str(refused.value)


def _settings(folder: Path, server: RedisServer) -> Settings:
    registry = folder / "registry"
    if not registry.exists():
        shutil.copytree(Path(registries.__file__).parent / "shipped", registry)
        (registry / "globals.yaml").write_text("requests_per_second: 10\n")
    return Settings(
        ledger="memory", bus="memory", registry=str(registry), data=str(folder / "data"), rate_gate=server.url,
        management_port="off", console="off",
    )  # fmt: skip


def _command(key: str) -> dict[str, Any]:
    return {
        "schema_version": "1", "tenant_id": "acme", "request_type": "OCR", "idempotency_key": key, "payload": {},
        "input_ref": "blob://in/x", "output_ref": "blob://out/x",
    }  # fmt: skip


async def test_two_servers_hold_a_tenant_to_one_rate(gate: RedisRateGate, server: RedisServer, tmp_path: Path) -> None:
    """Single commands on one, a batch on the other: 10 pass, not 20."""
    settings = _settings(tmp_path, server)
    async with open_app(settings) as one, open_app(settings) as two:
        started = time.monotonic()
        accepted = 0
        for number in range(6):
            await one.acceptance.submit(_command(f"single-{number}"), lambda tenant_id: True)
            accepted += 1
        results = await two.acceptance.submit_many(
            [_command(f"batch-{number}") for number in range(30)], lambda tenant_id: True
        )
        took = time.monotonic() - started
        refused = [result for result in results if isinstance(result, CallerError)]
        accepted += len(results) - len(refused)
        assert 10 <= accepted <= 11 + took * 10
        assert all(error.code == "RATE_LIMITED" and error.retry_after_seconds for error in refused)
        assert not isinstance(results[0], CallerError), "the first ones pass"
        report = await one.management.readiness.look()
        assert report.checks["rate_gate"].ok
        assert PASSWORD not in report.checks["rate_gate"].detail


async def test_the_doctor_asks_the_gate(running: RedisServer, tmp_path: Path) -> None:
    settings = _settings(tmp_path, running)
    found = {one.part: one for one in await examine_all(settings)}
    assert found["rate gate"].ok, found
    assert PASSWORD not in str(found)
    running.kill()
    found = {one.part: one for one in await examine_all(settings)}
    assert not found["rate gate"].ok
    assert "See that Redis runs" in str(found["rate gate"].remedy)
    assert PASSWORD not in str(found)
