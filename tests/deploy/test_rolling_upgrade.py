"""A deployment on PostgreSQL is upgraded process by process, and rolled back, while jobs and runbooks are at work:
nothing is lost, nothing is done twice, and no call is answered with 5xx.

The long form upgrades from the version before; the short form replaces this version by itself.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml
from tests.crash.processes import CALLBACK_KEYS, LUCIUS, environment
from tests.deploy import previous_version
from tests.deploy.chart import ROOT
from tests.deploy.rolling import Balancer, Fleet, Version
from tests.deploy.rolling_traffic import CountingClient, Traffic
from tests.long_form import IS_LONG, sized
from tests.runbooks.crash import under_fire
from tests.temporal.server import TemporalServer

OUTBOX = ("api", "api", "reconciler", "scheduler", "runbooks", "runbooks")
TEMPORAL = ("api", "api", "worker", "worker", "reconciler")
ROLES = {"outbox": OUTBOX, "temporal": TEMPORAL} if IS_LONG else {"outbox": ("api", "api")}
JOBS_A_LEG = sized(5, 60)
MEMBERS_A_LEG = 20
SHIPPED = ROOT / "src" / "lucius" / "registries" / "shipped"
SETTINGS = {
    "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
    "LUCIUS_LOG_LEVEL": "WARNING",
    "LUCIUS_SCHEDULER_INTERVAL": "0.3",
    "LUCIUS_RUNBOOK_SWEEP_INTERVAL": "0.3",
}


@pytest.fixture
def old(pytestconfig: pytest.Config) -> Version:
    assert pytestconfig.cache is not None
    program = previous_version.install(Path(pytestconfig.cache.mkdir("previous"))) if IS_LONG else LUCIUS
    return Version("old", program, {}, drains=not IS_LONG)


@pytest.fixture
def new(tmp_path: Path) -> Version:
    """With a registry that uses what the old version does not know, so that jobs have fields that are new to it."""
    registry = tmp_path / "registry"
    shutil.copytree(SHIPPED, registry)
    path = registry / "protocols" / "ocr_embedding_sis.yaml"
    protocol = yaml.safe_load(path.read_text())
    protocol["steps"][0]["payload"]["searchable"] = ["language"]
    path.write_text(yaml.safe_dump(protocol))
    return Version("new", LUCIUS, {"LUCIUS_REGISTRY": str(registry)}, drains=True)


def run(version: Version, settings: Mapping[str, str], *words: str) -> None:
    ran = subprocess.run(
        [version.program, *words], env=environment(settings), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def engine_settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    if request.param == "outbox":
        yield {}
        return
    with TemporalServer(tmp_path) as server:
        yield {"LUCIUS_ENGINE": "temporal", "LUCIUS_TEMPORAL_ADDRESS": server.address}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("engine_settings", "roles"), ROLES.items(), indirect=["engine_settings"], ids=list(ROLES))
async def test_upgrade_and_way_back_lose_and_double_nothing(
    tmp_path: Path,
    postgres_url: str,
    old: Version,
    new: Version,
    engine_settings: Mapping[str, str],
    roles: Sequence[str],
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    rng = random.Random(seed)
    settings = {**SETTINGS, **engine_settings, "LUCIUS_LEDGER": postgres_url}
    async with connected(postgres_url) as database, Balancer() as balancer:
        await database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        run(old, settings, "db", "upgrade")
        with ExitStack() as stack:
            settings["LUCIUS_ORCHESTRATOR_URL"] = f"http://127.0.0.1:{balancer.port}"
            fleet = Fleet(stack, tmp_path, settings, balancer)
            await fleet.start(roles, old)
            async with CountingClient(balancer.port, rng) as client, Traffic(client, rng) as traffic:
                batches = Batches(client, stack, tmp_path, balancer.port) if "runbooks" in roles else None
                if batches is not None:
                    await batches.prepare()
                await traffic.until(JOBS_A_LEG)
                run(new, settings, "db", "upgrade")
                leaving = old
                legs = (new, old, new) if IS_LONG else (new,)
                for leg, version in enumerate(legs, 1):
                    if batches is not None:
                        await batches.add(leg)
                    assert await traffic.in_flight() > 0
                    broken = len(client.broken)
                    await fleet.roll(version)
                    assert not leaving.drains or len(client.broken) == broken, client.broken
                    leaving = version
                    await traffic.until(JOBS_A_LEG * (leg + 1))
                run(new, settings, "db", "contract", "--yes")
                await traffic.until(JOBS_A_LEG * (len(legs) + 2))
                await traffic.finish()
                if batches is not None:
                    await batches.audit(database)
                await traffic.audit()
                print(f"{len(traffic.accepted)} jobs; answers {dict(client.answers)}, {len(client.broken)} broken")
        for process in fleet.all:
            assert "Traceback" not in process.log, process.log[-3000:]
        assert await database.fetchval("SELECT count(*) FROM job_search_values") > 0


class Batches:
    """Batches of a runbook, and the worker that does their steps and keeps a journal."""

    def __init__(self, client: CountingClient, stack: ExitStack, folder: Path, port: int) -> None:
        self._client = client
        self._stack = stack
        settings = {"LUCIUS_URL": f"http://127.0.0.1:{port}"}
        self._worker = under_fire.WorkerProcess("http", settings, folder / "worker")
        self._members: list[str] = []

    async def prepare(self) -> None:
        worker_of = dict.fromkeys(under_fire.PHASES, "http-pool")
        source = {"type": "manual", "primary_key": "Upn"}
        await under_fire.publish(self._client, under_fire.runbook("by-hand", source, worker_of))
        under_fire.start_all(self._stack, [self._worker])

    async def add(self, leg: int) -> None:
        more = under_fire.members("hand", leg * MEMBERS_A_LEG, MEMBERS_A_LEG)
        await under_fire.make_batch(self._client, "by-hand", more)
        self._members += more

    async def audit(self, database: asyncpg.Connection[Any]) -> None:
        async def look(sql: str) -> Sequence[Sequence[Any]]:
            return [tuple(row) for row in await database.fetch(sql)]

        await under_fire.until_ended(look, len(self._members), [self._worker])
        await under_fire.audit(look, self._members, [self._worker.journal])
