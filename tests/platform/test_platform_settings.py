"""The kit's settings: from the environment, within limits, and never shown where they are secret."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lucius.platform import PlatformSettings, ServiceUnusable, read_settings
from lucius.platform.settings import is_loopback, name_of

NAMES = {
    "orchestrator_url": "LUCIUS_ORCHESTRATOR_URL",
    "api_key": "LUCIUS_API_KEY",
    "bus": "LUCIUS_PLATFORM_BUS",
    "callbacks": "LUCIUS_PLATFORM_CALLBACKS",
    "lock_seconds": "LUCIUS_PLATFORM_LOCK_SECONDS",
    "concurrency": "LUCIUS_PLATFORM_CONCURRENCY",
    "state": "LUCIUS_PLATFORM_STATE",
    "store": "LUCIUS_PLATFORM_STORE",
    "health_port": "LUCIUS_PLATFORM_HEALTH_PORT",
    "health_host": "LUCIUS_PLATFORM_HEALTH_HOST",
    "batch_max": "LUCIUS_PLATFORM_BATCH_MAX",
    "drain_seconds": "LUCIUS_PLATFORM_DRAIN_SECONDS",
    "work_seconds_max": "LUCIUS_PLATFORM_WORK_SECONDS_MAX",
    "error_frames": "LUCIUS_PLATFORM_ERROR_FRAMES",
    "version": "LUCIUS_PLATFORM_VERSION",
    "file_roots": "LUCIUS_PLATFORM_FILE_ROOTS",
    "blob_roots": "LUCIUS_PLATFORM_BLOB_ROOTS",
    "storage_account": "LUCIUS_STORAGE_ACCOUNT",
    "storage_sas": "LUCIUS_STORAGE_SAS",
    "storage_connection": "LUCIUS_STORAGE_CONNECTION",
    "azure_credential": "LUCIUS_AZURE_CREDENTIAL",
    "azure_client_id": "LUCIUS_AZURE_CLIENT_ID",
    "https_hosts": "LUCIUS_PLATFORM_HTTPS_HOSTS",
    "https_seconds_max": "LUCIUS_PLATFORM_HTTPS_SECONDS_MAX",
    "private_addresses_allowed": "LUCIUS_PLATFORM_PRIVATE_ADDRESSES_ALLOWED",
    "data": "LUCIUS_DATA",
    "otlp_endpoint": "LUCIUS_OTLP_ENDPOINT",
    "rehearsing": "LUCIUS_CONTRACT_TEST",
}
GIVEN: dict[str, tuple[str, Any]] = {
    "orchestrator_url": ("https://lucius.example.org/prefix", "https://lucius.example.org/prefix"),
    "api_key": (" key ", "key"),
    "bus": ("nats://nats1:4222", "nats://nats1:4222"),
    "callbacks": ("bus", "bus"),
    "lock_seconds": ("30", 30.0),
    "concurrency": ("7", 7),
    "state": ("/var/lib/ocr", "/var/lib/ocr"),
    "store": ("workspace", "workspace"),
    "health_port": ("8080", 8080),
    "health_host": ("0.0.0.0", "0.0.0.0"),
    "batch_max": ("1", 1),
    "drain_seconds": ("0.5", 0.5),
    "work_seconds_max": ("60", 60.0),
    "error_frames": ("off", False),
    "version": ("2.1", "2.1"),
    "file_roots": ("/srv/documents", "/srv/documents"),
    "blob_roots": ("blob://documents", "blob://documents"),
    "storage_account": ("acme", "acme"),
    "storage_sas": ("sv=1&sig=x", "sv=1&sig=x"),
    "storage_connection": ("UseDevelopmentStorage=true", "UseDevelopmentStorage=true"),
    "azure_credential": ("workload", "workload"),
    "azure_client_id": ("id", "id"),
    "https_hosts": ("files.example", "files.example"),
    "https_seconds_max": ("5", 5.0),
    "private_addresses_allowed": ("on", True),
    "otlp_endpoint": ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
    "rehearsing": ("On", True),
}


def test_every_setting_has_its_variable() -> None:
    assert {one.name: name_of(one.name) for one in fields(PlatformSettings)} == NAMES
    assert set(GIVEN) == set(NAMES) - {"data"}, "the data folder is what every case gives"


@pytest.mark.parametrize("name", list(GIVEN))
def test_a_variable_sets_its_setting_and_nothing_else(name: str, tmp_path: Path) -> None:
    text, value = GIVEN[name]
    untouched = read_settings({"LUCIUS_DATA": str(tmp_path)})
    settings = read_settings({NAMES[name]: text, "LUCIUS_DATA": str(tmp_path)})
    assert getattr(settings, name) == value
    assert getattr(untouched, name) == PlatformSettings.__dataclass_fields__[name].default != value
    changed = {one.name for one in fields(settings) if getattr(settings, one.name) != getattr(untouched, one.name)}
    assert changed == {name}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("orchestrator_url", "lucius.example.org", "is not an address"),
        ("orchestrator_url", "http://", "is not an address"),
        ("orchestrator_url", "http://127.0.0.1:eight", "is not an address"),
        ("orchestrator_url", "http://127.0.0.1:99999", "is not an address"),
        ("orchestrator_url", "http://[::1", "is not an address"),
        ("orchestrator_url", "http://me:hidden@host", "a user or a password"),
        ("api_key", "two words", "characters that a key cannot have"),
        ("api_key", "schlüssel", "characters that a key cannot have"),
        ("concurrency", "0", "between 1 and 1000"),
        ("concurrency", "1001", "between 1 and 1000"),
        ("concurrency", "2.5", "is not a whole number"),
        ("store", "redis", "one of sqlite, workspace, memory"),
        ("health_port", "-1", "between 0 and 65535"),
        ("health_port", "65536", "between 0 and 65535"),
        ("batch_max", "0", "between 1 and 500"),
        ("batch_max", "501", "between 1 and 500"),
        ("drain_seconds", "-1", "between 0 and 86400"),
        ("drain_seconds", "nan", "between 0 and 86400"),
        ("drain_seconds", "inf", "between 0 and 86400"),
        ("work_seconds_max", "0", "between 1 and 604800"),
        ("work_seconds_max", "soon", "is not a number"),
        ("rehearsing", "perhaps", "one of 1, true"),
    ],
)
def test_a_setting_that_cannot_be_used_says_which_and_why(name: str, text: str, told: str) -> None:
    with pytest.raises(ServiceUnusable) as refused:
        read_settings({NAMES[name]: text})
    assert NAMES[name] in str(refused.value)
    assert told in str(refused.value)
    for secret in ("hidden", "two words", "schlüssel"):
        assert secret not in str(refused.value)


def test_empty_variables_are_as_good_as_none() -> None:
    assert read_settings(dict.fromkeys(NAMES.values(), " ")) == read_settings({})


def test_the_address_has_an_alias_that_counts_where_the_name_is_not_set() -> None:
    alias = {"LUCIUS_URL": "https://alias.example.org"}
    assert read_settings(alias).orchestrator_url == "https://alias.example.org"
    named = alias | {"LUCIUS_ORCHESTRATOR_URL": "https://name.example.org"}
    assert read_settings(named).orchestrator_url == "https://name.example.org"


def test_overrides_go_before_the_environment() -> None:
    assert read_settings({"LUCIUS_PLATFORM_CONCURRENCY": "7"}, concurrency=9).concurrency == 9


def test_the_key_is_in_no_representation() -> None:
    assert "hidden-key" not in repr(PlatformSettings(api_key="hidden-key"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "api-key").write_text("key-of-this-machine\n")
    return tmp_path


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://localhost:1", "https://[::1]:8000", "http://127.1.2.3"]
)
def test_the_key_file_is_for_servers_on_this_machine(data: Path, url: str) -> None:
    environment = {"LUCIUS_DATA": str(data), "LUCIUS_ORCHESTRATOR_URL": url}
    assert read_settings(environment).api_key == "key-of-this-machine"
    assert read_settings({**environment, "LUCIUS_API_KEY": "mine"}).api_key == "mine"


@pytest.mark.parametrize("url", ["http://10.0.0.1", "https://lucius.example.org", "http://localhost.example.org"])
def test_the_key_file_is_shown_to_nobody_else(data: Path, url: str) -> None:
    assert read_settings({"LUCIUS_DATA": str(data), "LUCIUS_ORCHESTRATOR_URL": url}).api_key == ""
    assert not is_loopback(url)


def test_a_key_file_that_is_missing_or_is_no_text_is_no_key(tmp_path: Path) -> None:
    assert read_settings({"LUCIUS_DATA": str(tmp_path)}).api_key == ""
    (tmp_path / "api-key").write_bytes(b"\xff\xfe\x00")
    assert read_settings({"LUCIUS_DATA": str(tmp_path)}).api_key == ""
