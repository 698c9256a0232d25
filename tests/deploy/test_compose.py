"""The Compose file. No engine is here to start it: what can be read of it is."""

from __future__ import annotations

from typing import Any

import click
import pytest
import yaml
from tests.deploy.chart import ROOT

from lucius.cli.main import cli
from lucius.settings import read_settings

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
OURS = {name: one for name, one in COMPOSE["services"].items() if one["image"].startswith("lucius/")}
SECRET = {"LUCIUS_API_KEY": "key", "LUCIUS_CALLBACK_KEYS": "k1:" + "a" * 32}


@pytest.mark.parametrize("name", OURS)
def test_settings_and_commands_are_those_of_lucius(name: str) -> None:
    read_settings({**OURS[name].get("environment", {}), **SECRET})
    command: click.Command = cli
    for word in OURS[name]["command"]:
        assert isinstance(command, click.Group)
        command = command.commands[word]


@pytest.mark.parametrize("name", OURS)
def test_containers_have_no_privilege(name: str) -> None:
    assert OURS[name]["read_only"] is True
    assert OURS[name]["cap_drop"] == ["ALL"]


def test_profiles_start_what_their_services_depend_on() -> None:
    for name, one in COMPOSE["services"].items():
        for needed in one.get("depends_on", {}):
            assert set(one["profiles"]) <= set(COMPOSE["services"][needed]["profiles"]), f"{name} needs {needed}"


def test_volumes_are_declared() -> None:
    used = {mount.partition(":")[0] for one in COMPOSE["services"].values() for mount in one.get("volumes", [])}
    assert used == set(COMPOSE["volumes"])
