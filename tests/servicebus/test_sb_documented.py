"""The page about the test server and the server say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lucius.testing.servicebus.config import settings_of
from lucius.testing.servicebus.faults import Faults
from lucius.testing.servicebus.properties import FORWARDING, IGNORED, UNSUPPORTED_IF_TRUE
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.sql import SYSTEM_PROPERTIES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "servicebus-emulator.md").read_text("utf-8")
FOR_THE_SERVER = {"strikes", "check", "check_token", "is_stalled", "on_change", "happened"}


def test_the_example_of_config_json_is_understood() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    settings = settings_of(json.loads(example))
    assert list(settings.queues) == ["work"]
    assert list(settings.topics["global-bus-p0"].subscriptions) == ["ocr"]


def test_every_switch_is_documented() -> None:
    switches = {name for name in dir(Faults) if not name.startswith("_")} - FOR_THE_SERVER
    for name in switches:
        assert f"`server.faults.{name}(" in PAGE, name
    for name in ("advance", "drop_links", "drop_connections", "lose_locks", "expire_tokens", "stop", "start"):
        assert hasattr(ServiceBusServer, name)
        assert f"`server.{name}(" in PAGE, name


def test_every_property_is_documented() -> None:
    for name in (*IGNORED, *FORWARDING, *UNSUPPORTED_IF_TRUE):
        assert f"`{name}`" in PAGE, name
    listed = {name.lower() for name in re.findall(r"`(\w+)`", PAGE)}
    assert set(SYSTEM_PROPERTIES) <= listed
