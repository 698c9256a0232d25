"""In the long form, a real Prometheus scrapes every role of a loaded deployment: each query of the dashboards and of
the alerts has a result. What shows only in trouble is provoked."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.client import Client, envelope
from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port, run_lucius
from tests.crash.run import Submitter
from tests.crash.worker import Worker
from tests.deploy import prometheus_server
from tests.deploy.test_monitoring import FOLDER, dashboard_queries, rules
from tests.deploy.test_rolling_upgrade import SHIPPED
from tests.long_form import IS_LONG
from tests.nats_server import NatsServer
from tests.runbooks.crash import under_fire

JOBS = 80
MEMBERS = 20
SECONDS_MAX = 120.0
ROLES = ("api", "reconciler", "scheduler", "runbooks")
_COMPARISON = re.compile(r"\s+(?:==|>|<)\s+[\d.]+")
_UNLESS = re.compile(r"\s+unless on \(\w+\)\s+")


def operands(expression: str) -> list[str]:
    """What an alert compares: an alert that does not fire has no result, but what it looks at must have one."""
    return [_COMPARISON.sub("", part) for part in _UNLESS.split(expression)]


def test_operands_of_an_alert() -> None:
    assert operands("max(a) == 1") == ["max(a)"]
    assert operands("sum(a) > 0 unless on (service) sum(b) > 0.5") == ["sum(a)", "sum(b)"]


class TestRealPrometheus:
    __test__ = IS_LONG

    @pytest.fixture
    def programs(self, pytestconfig: pytest.Config) -> Path:
        assert pytestconfig.cache is not None
        return prometheus_server.install(Path(pytestconfig.cache.mkdir("prometheus")))

    def test_promtool_accepts_the_rules(self, programs: Path) -> None:
        command = [programs / "promtool", "check", "rules", "--lint-fatal", FOLDER / "alerts.yaml"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert f"SUCCESS: {len(rules())} rules found" in ran.stdout

    @pytest.mark.timeout(400)
    async def test_every_query_has_a_result(self, programs: Path, tmp_path: Path, postgres_url: str) -> None:
        ports = {role: free_port() for role in ROLES}
        queries = [*dashboard_queries(), *(part for rule in rules() for part in operands(rule["expr"]))]
        with ExitStack() as stack:
            nats = NatsServer()
            stack.callback(nats.stop)
            nats.start()
            settings = shared_settings(tmp_path, postgres_url, nats.url)
            upgraded = run_lucius("db", "upgrade", settings=settings)
            assert upgraded.returncode == 0, upgraded.stderr
            api_port = free_port()
            for role in ROLES:
                own = settings | {"LUCIUS_MANAGEMENT_PORT": str(ports[role])}
                port = api_port if role == "api" else None
                stack.enter_context(Process(role, settings=own, folder=tmp_path / role, port=port))
            prometheus = stack.enter_context(
                prometheus_server.Prometheus(programs, tmp_path, ports, FOLDER / "alerts.yaml")
            )
            await load(stack, tmp_path, api_port, nats)
            assert not prometheus.series("lucius_no_such_metric"), "an absent metric has no result"
            deadline = time.monotonic() + SECONDS_MAX
            absent = queries
            while absent := [query for query in absent if not prometheus.series(query)]:
                assert time.monotonic() < deadline, f"without a result: {absent}"
                await asyncio.sleep(2.0)
            unhealthy = [rule for rule in prometheus.rules() if rule["health"] != "ok"]
            assert unhealthy == []
            assert len(prometheus.rules()) == len(rules())


def shared_settings(folder: Path, ledger: str, bus: str) -> dict[str, str]:
    registry = folder / "registry"
    (registry / "tenants").mkdir(parents=True)
    for path in SHIPPED.rglob("*.yaml"):
        target = registry / path.relative_to(SHIPPED)
        target.parent.mkdir(exist_ok=True)
        target.write_text(path.read_text())
    (registry / "tenants" / "acme.yaml").write_text("id: acme\nmax_inflight: 500\n")
    return {
        **QUICK,
        **under_fire.QUICK,
        "LUCIUS_LEDGER": ledger,
        "LUCIUS_BUS": bus,
        "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
        "LUCIUS_REGISTRY": str(registry),
        "LUCIUS_SOURCE_MISSING": str(folder / "missing.csv"),
    }


async def load(stack: ExitStack, folder: Path, port: int, nats: NatsServer) -> None:
    """Jobs with every kind of trouble, batches, a source that cannot be read, and a bus that is away for a moment."""
    rng = random.Random(17)
    async with Client([port], rng) as client:
        await batches(stack, client, folder, port)
        submitter = Submitter(client, rng)
        async with Worker(client, rng) as worker:
            for place in range(JOBS):
                await submitter.send(f"job-{place}")
                worker.check()
            refused = await client.ask("POST", "/v1/commands", envelope("refused", request_type="UNKNOWN"))
            assert refused.status == 422, refused
            await asyncio.sleep(5.0)  # Some scrapes while all of that goes on.
            worker.check()
        nats.kill()
        lost = asyncio.create_task(submitter.send("while-the-bus-is-away"))
        await asyncio.sleep(5.0)
        nats.start()
        await lost


async def batches(stack: ExitStack, client: Client, folder: Path, port: int) -> None:
    worker_of = dict.fromkeys(under_fire.PHASES, "http-pool")
    manual = {"type": "manual", "primary_key": "Upn"}
    missing = {
        "type": "csv", "connection": "LUCIUS_SOURCE_MISSING", "primary_key": "Upn", "batch_time_column": "Start",
    }  # fmt: skip
    await under_fire.publish(client, under_fire.runbook("by-hand", manual, worker_of))
    await under_fire.publish(client, under_fire.runbook("unread", missing, worker_of))
    worker = under_fire.WorkerProcess("http", {"LUCIUS_URL": f"http://127.0.0.1:{port}"}, folder / "worker")
    under_fire.start_all(stack, [worker])
    await under_fire.make_batch(client, "by-hand", under_fire.members("hand", 0, MEMBERS))
