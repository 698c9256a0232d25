"""`lucius bus` on Service Bus: it creates what is missing, names every difference, and prints the same as text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs
from tests.servicebus_server import ServerThread

from lucius import registries
from lucius.buses.servicebus import ServiceBus, ServiceBusOptions
from lucius.buses.servicebus.entities import plan
from lucius.buses.servicebus.printing import as_bicep, as_json
from lucius.buses.servicebus.provisioning import administration
from lucius.domain.routing import LANE_TOPICS
from lucius.ports.bus import BusUnavailable, Subscription
from lucius.testing.bus_publishing import message
from lucius.testing.servicebus.config import settings_of
from lucius.testing.servicebus.filters import Rule
from lucius.testing.servicebus.tokens import SharedKey

WANTED = [
    Subscription(topic="lane", name="ocr", where={"service": "ocr"}, lock_seconds=10.0),
    Subscription(topic="lane", name="sis", where={"service": "sis"}, lock_seconds=1.0, delivery_max=7),
    Subscription(topic="results", name="orchestrator"),
]
PLAN = plan(WANTED, ["jobs"])


@pytest.fixture(scope="module")
def own_server() -> Iterator[ServerThread]:
    thread = ServerThread(SharedKey("tests", "the right key"))
    yield thread
    thread.end()


@pytest.fixture
def options(own_server: ServerThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceBusOptions]:
    yield own_server.administration(tmp_path_factory.getbasetemp())
    own_server.forget()


async def test_provision_creates_everything_once(own_server: ServerThread, options: ServiceBusOptions) -> None:
    async with administration(options) as provisioner:
        assert await provisioner.differences(PLAN) == [
            "topic jobs is missing",
            "topic lane is missing",
            "topic results is missing",
        ]
        assert len(await provisioner.provision(PLAN)) == 6
        assert await provisioner.differences(PLAN) == []
        assert await provisioner.provision(PLAN) == []
    sis = own_server.run(lambda: own_server.server.namespace.subscription("lane", "sis"))
    assert (sis.queue.settings.lock_seconds, sis.queue.settings.max_delivery_count) == (5.0, 7)
    assert sis.queue.settings.dead_letters_expired
    assert list(sis.rules) == ["lucius"]


async def test_check_names_every_difference_and_provision_changes_it(
    own_server: ServerThread, options: ServiceBusOptions
) -> None:
    async with administration(options) as provisioner:
        await provisioner.provision(PLAN)

        def spoil() -> None:
            namespace = own_server.server.namespace
            ocr = namespace.subscription("lane", "ocr")
            ocr.queue.settings.lock_seconds = 60.0
            ocr.queue.settings.max_delivery_count = 3
            ocr.rules[Rule.default().name] = Rule.default()
            namespace.delete_subscription("lane", "sis")
            namespace.delete("jobs")

        own_server.run(spoil)
        found = await provisioner.differences(PLAN)
        assert found == [
            "topic jobs is missing",
            "subscription lane/ocr: lock duration is PT1M instead of PT10S",
            "subscription lane/ocr: max delivery count is 3 instead of 10",
            "subscription lane/ocr: its rules (lucius, $Default) are not the one filter that lets pass service = ocr",
            "subscription lane/sis is missing",
        ]
        await provisioner.provision(PLAN)
        assert await provisioner.differences(PLAN) == []


async def test_check_names_a_topic_that_is_full(own_server: ServerThread, options: ServiceBusOptions) -> None:
    async with administration(options) as provisioner:
        await provisioner.provision(PLAN)
        own_server.run(lambda: setattr(own_server.server.namespace.topic("lane").settings, "size_bytes_max", 1_048_576))
        body = b"x" * 200_000
        async with ServiceBus(options, own_server.clock()) as bus:
            await bus.declare(WANTED)
            assert await provisioner.differences(PLAN) == []
            for number in range(5):
                assert await bus.publish([message(f"m{number}", "lane", body=body)]) == [None]
        [line] = await provisioner.differences(PLAN)
        assert line.startswith("topic lane: it is full: 10"), line


async def test_depths_are_counted_by_the_administration_api(
    own_server: ServerThread, options: ServiceBusOptions
) -> None:
    """With one look into each subscription that has messages; without the right to count, by peeking."""
    async with administration(options) as provisioner:
        await provisioner.provision(PLAN)
    wrong = structs.replace(options, administration=options.administration.replace("the right key", "a wrong one"))
    for given in (options, wrong):
        async with ServiceBus(given, own_server.clock()) as bus:
            await bus.declare(WANTED)
            assert await bus.publish([message(f"m {given.administration} {n}", "lane") for n in range(3)]) == [None] * 3
            [taken] = await bus.receive(["lane"], "ocr", 1, 10.0, 10.0)
            depths = {(depth.topic, depth.subscription): depth for depth in await bus.depths()}
            ocr = depths["lane", "ocr"]
            assert (ocr.ready, ocr.locked, ocr.dead) == (2, 1, 0)
            assert ocr.oldest_at is not None
            assert depths["lane", "sis"].oldest_at is None
            looked = set(bus._browsing._browsers)
            assert (("lane", "sis", False) in looked) is (given is wrong)
            await bus.settle([taken.ref])
            while rest := await bus.receive(["lane"], "ocr", 5, 10.0, 1.0):
                await bus.settle([delivery.ref for delivery in rest])


async def test_wrong_key_and_missing_server_are_said(options: ServiceBusOptions) -> None:
    wrong = ServiceBusOptions(
        connection=options.connection,
        administration=options.administration.replace("the right key", "a wrong one"),
        administration_ca_file=options.administration_ca_file,
    )
    with pytest.raises(BusUnavailable, match="refuses the key"):
        async with administration(wrong) as provisioner:
            await provisioner.differences(PLAN)


def test_printed_json_sets_up_an_emulator() -> None:
    settings = settings_of(json.loads(as_json(PLAN)))
    assert set(settings.topics) == {"jobs", "lane", "results"}
    ocr = settings.topics["lane"].subscriptions["ocr"]
    assert (ocr.queue.lock_seconds, ocr.queue.ttl_seconds) == (10.0, 14 * 86_400.0)
    assert [rule.name for rule in ocr.rules] == ["lucius"]


def test_printed_bicep_has_every_entity() -> None:
    text = as_bicep(PLAN)
    assert text.count("namespaces/topics@") == 3
    assert text.count("topics/subscriptions@") == 3
    assert text.count("correlationFilter: { properties: { service: 'ocr' } }") == 1
    assert text.count("{") == text.count("}")


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def lucius(options: ServiceBusOptions, tmp_path: Path) -> Command:
    """Runs `lucius bus` with these arguments, and with other settings if they are given."""
    registry = tmp_path / "registry"
    (registry / "protocols").mkdir(parents=True)
    shipped = Path(registries.__file__).parent / "shipped"
    shutil.copy(shipped / "globals.yaml", registry)
    shutil.copy(shipped / "protocols" / "ocr.yaml", registry / "protocols")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")},
        "LUCIUS_BUS": "servicebus",
        "LUCIUS_SERVICEBUS_CONNECTION": options.connection,
        "LUCIUS_SERVICEBUS_ADMINISTRATION": options.administration,
        "LUCIUS_SERVICEBUS_ADMINISTRATION_CA_FILE": options.administration_ca_file,
        "LUCIUS_DATA": str(tmp_path),
        "LUCIUS_REGISTRY": str(registry),
    }

    def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "lucius.cli.main", "bus", *arguments]
        return subprocess.run(program, env=environment | settings, capture_output=True, text=True, timeout=120)

    return run


def test_commands_print_check_and_provision(lucius: Command) -> None:
    before = lucius("check")
    assert before.returncode == 1, before.stderr
    assert f"topic {LANE_TOPICS[15]} is missing" in before.stdout
    assert "run `lucius bus provision`" in before.stdout
    made = lucius("provision", "--worker", "mailbox")
    assert made.returncode == 0, made.stderr
    assert "subscription jobs/mailbox created" in made.stdout
    after = lucius("check", "--worker", "mailbox")
    assert (after.returncode, after.stdout) == (0, ""), after.stdout
    printed = lucius("provision", "--print", "json", "--worker", "mailbox")
    config = json.loads(printed.stdout)
    assert set(settings_of(config).topics) >= {*LANE_TOPICS, "orchestrator-events", "results"}
    [namespace] = config["UserConfig"]["Namespaces"]
    subscriptions = {
        (topic["Name"], one["Name"]): one["Properties"]
        for topic in namespace["Topics"]
        for one in topic["Subscriptions"]
    }
    for place in (("orchestrator-events", "orchestrator"), ("results", "orchestrator"), ("jobs", "mailbox")):
        properties = subscriptions[place]
        assert properties["LockDuration"] == "PT1M"
        assert properties["MaxDeliveryCount"] == 10
        assert properties["DefaultMessageTimeToLive"] == "P14D"
        assert properties["DeadLetteringOnMessageExpiration"] is True


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("LUCIUS_SERVICEBUS_CONNECTION", "refuses this process at subscription"),
        ("LUCIUS_SERVICEBUS_ADMINISTRATION", "refuses the key or the credential"),
    ],
)
def test_check_names_a_wrong_key(lucius: Command, options: ServiceBusOptions, variable: str, words: str) -> None:
    right = {"CONNECTION": options.connection, "ADMINISTRATION": options.administration}[variable.rpartition("_")[2]]
    found = lucius("check", **{variable: right.replace("the right key", "another key")})
    assert found.returncode == 1, found.stderr
    assert len([line for line in found.stdout.splitlines() if words in line]) == 1, found.stdout
    assert "another key" not in found.stdout + found.stderr
