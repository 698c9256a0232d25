"""A reference service passes the contract kit on NATS and on Service Bus, with callbacks over HTTP and over the bus."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kit import run_kit
from tests.long_form import IS_LONG
from tests.nats_server import NatsServer
from tests.servicebus_server import ServerThread

from lucius.contract.cases import every_case, is_played
from lucius.domain.routing import LANE_TOPICS
from lucius.ports.bus import Subscription
from lucius.usecases.replies import reply_subscriptions

SHORT = {"nats": ("result-good", "stale-in-work", "crash-in-work"), "servicebus": ("result-good",)}
DUPLICATE_SECONDS = 3_600.0
LOCK_SECONDS = 5.0
"""The shortest of Service Bus: what a killed service had in its hands comes back after this time."""


@contextmanager
def _nats(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str]]]:
    server: NatsServer = request.getfixturevalue("nats_server")
    yield server.url, {}


@contextmanager
def _servicebus(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str]]]:
    server: ServerThread = request.getfixturevalue("servicebus_server")
    lanes = [Subscription(topic=topic, name="ocr", where={"service": "ocr"}) for topic in LANE_TOPICS]
    server.declare([*lanes, *reply_subscriptions()], DUPLICATE_SECONDS, LOCK_SECONDS)
    yield "servicebus://", {"LUCIUS_SERVICEBUS_CONNECTION": server.server.connection_string}
    server.forget()


BROKERS = {"nats": _nats, "servicebus": _servicebus}


@pytest.mark.timeout(500)
@pytest.mark.parametrize("callbacks", ["http", "bus"] if IS_LONG else ["bus"])
@pytest.mark.parametrize("broker", BROKERS)
def test_reference_service_passes_the_contract_on_a_broker(
    request: pytest.FixtureRequest, broker: str, callbacks: str
) -> None:
    played = {case.id for case in every_case() if is_played(case, True, callbacks == "bus")}
    chosen = played if IS_LONG else set(SHORT[broker])
    only = [word for name in sorted(chosen) for word in ("--only", name)]
    options = ["--service", "ocr", "--step-type", "OCR", "--output", "json"]
    with BROKERS[broker](request) as (url, settings):
        ran = run_kit(
            *options, "--bus", url, "--callbacks", callbacks, *only,
            service=[sys.executable, "-m", "lucius.cli.main", "platform", "ocr"], settings=settings,
        )  # fmt: skip
    assert ran.exit_code == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-1000:]}"
    assert ran.statuses() == dict.fromkeys(chosen, "PASS")


def test_callbacks_on_a_bus_need_directives_from_it() -> None:
    ran = run_kit("--callbacks", "bus")
    assert (ran.exit_code, "--callbacks bus needs --bus" in ran.stderr) == (2, True)
