from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lucius.functions
import lucius.platform
from lucius.functions import FunctionWorker, WorkerSettings, WorkerUnusable, read_settings


def test_settings_come_from_the_environment_and_arguments_go_first() -> None:
    environment = {
        "LUCIUS_URL": "https://lucius.example:8443",
        "LUCIUS_API_KEY": "key",
        "LUCIUS_WORKER_CONCURRENCY": "3",
        "LUCIUS_WORKER_DRAIN_SECONDS": "1.5",
        "LUCIUS_WORKER_PULL_MAX": "100",
    }
    settings = read_settings(environment, pull_max=7)
    assert (settings.url, settings.api_key) == ("https://lucius.example:8443", "key")
    assert (settings.concurrency, settings.drain_seconds, settings.pull_max) == (3, 1.5, 7)
    assert "key'" not in repr(settings)


def test_the_address_has_a_name_that_goes_before_its_alias() -> None:
    named = {"LUCIUS_ORCHESTRATOR_URL": "https://name.example.org"}
    assert read_settings(named).url == "https://name.example.org"
    assert read_settings(named | {"LUCIUS_URL": "https://alias.example.org"}).url == "https://name.example.org"


def test_both_kits_name_one_thing_by_one_name() -> None:
    assert lucius.functions.Throttled is lucius.functions.RateLimited
    assert lucius.functions.WorkerUnusable is lucius.functions.ServiceUnusable is lucius.platform.ServiceUnusable
    assert WorkerSettings().concurrency == lucius.platform.PlatformSettings().concurrency


def test_the_defaults_are_those_that_are_documented() -> None:
    settings = read_settings({})
    assert (settings.concurrency, settings.drain_seconds, settings.pull_max) == (16, 20.0, 256)
    assert (settings.throttle_tries, settings.renew_seconds, settings.results_max) == (3, 20.0, 500)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LUCIUS_WORKER_CONCURRENCY", "many"),
        ("LUCIUS_WORKER_CONCURRENCY", "0"),
        ("LUCIUS_WORKER_CONCURRENCY", "1.5"),
        ("LUCIUS_WORKER_DRAIN_SECONDS", "-1"),
        ("LUCIUS_WORKER_DRAIN_SECONDS", "nan"),
        ("LUCIUS_WORKER_PULL_MAX", "257"),
        ("LUCIUS_URL", "lucius"),
        ("LUCIUS_URL", "ftp://lucius"),
        ("LUCIUS_URL", "http://lucius:port"),
        ("LUCIUS_URL", "http://me:secret@lucius"),
        ("LUCIUS_API_KEY", "two words"),
    ],
)
def test_a_bad_setting_is_named(name: str, text: str) -> None:
    with pytest.raises(WorkerUnusable, match=name) as caught:
        read_settings({name: text})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("fields", [{"throttle_tries": 0}, {"unsent_max": "2"}, {"colour": 1}])
def test_a_bad_argument_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(WorkerUnusable, match=next(iter(fields))):
        read_settings({}, **fields)


def test_the_key_beside_a_server_of_this_machine_is_found_and_shown_to_no_other(tmp_path: Path) -> None:
    (tmp_path / "api-key").write_text("found\n")
    assert read_settings({"LUCIUS_DATA": str(tmp_path)}).api_key == "found"
    assert read_settings({"LUCIUS_DATA": str(tmp_path), "LUCIUS_URL": "http://elsewhere"}).api_key == ""
    assert read_settings({"LUCIUS_DATA": str(tmp_path), "LUCIUS_API_KEY": "given"}).api_key == "given"


async def test_a_worker_without_functions_does_not_start() -> None:
    with pytest.raises(WorkerUnusable, match="no function"):
        await FunctionWorker("empty").serve(settings=WorkerSettings())
