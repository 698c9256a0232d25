"""A client that the project did not write: Azure's own for Node, from npm, against the test server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests import node_packages

from lucius.testing.servicebus.filters import CorrelationFilter, Rule
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import NamespaceSettings, QueueSettings, SubscriptionSettings, TopicSettings

PROGRAM = Path(__file__).parent / "node_client.mjs"
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


@pytest.fixture
def package(pytestconfig: pytest.Config) -> Path:
    """A folder with the package in it."""
    assert pytestconfig.cache is not None
    return node_packages.install(Path(pytestconfig.cache.mkdir("npm")), node_packages.SERVICE_BUS)


async def test_azures_client_for_node_works_against_the_server(package: Path) -> None:
    ocr = SubscriptionSettings(rules=[Rule("r", CorrelationFilter({}, {"service": "ocr"}))])
    settings = NamespaceSettings(
        {"work": QueueSettings(), "talks": QueueSettings(requires_session=True)},
        {"lane": TopicSettings(subscriptions={"ocr": ocr})},
    )
    async with ServiceBusServer(settings) as server, asyncio.timeout(RUN_SECONDS_MAX):
        running = await asyncio.create_subprocess_exec(
            node_packages.node_program(),
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
