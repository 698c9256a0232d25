"""Profiles: which server and which key a command uses, and that keys stay private."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lucius.cli.main import cli
from lucius.cli.server_profiles import ServerProfiles, profiles_file, read_profiles

KEY = "the-secret-key-of-prod"


def lucius(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(cli, [*arguments], **options)


@pytest.fixture
def prod(scripted: Any) -> Any:
    """A server with a profile `prod` that is in use."""
    scripted.on("GET /v1/protocols", {"items": []})
    assert lucius("profile", "add", "prod", scripted.url, "--key-file", "-", input=KEY).exit_code == 0
    return scripted


def test_the_first_profile_is_in_use_and_its_file_is_private(prod: Any) -> None:
    assert lucius("protocols").exit_code == 0
    assert prod.calls[-1][2] == f"Bearer {KEY}"
    assert stat.S_IMODE(profiles_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(profiles_file().parent.stat().st_mode) & 0o077 == 0


def test_a_file_that_others_may_read_is_made_private(prod: Any) -> None:
    profiles_file().chmod(0o644)
    read_profiles()
    assert stat.S_IMODE(profiles_file().stat().st_mode) == 0o600


def test_no_command_prints_a_key(prod: Any) -> None:
    for command in (("list",), ("show",), ("show", "prod"), ("list", "-o", "json"), ("show", "-o", "yaml")):
        shown = lucius("profile", *command)
        assert (shown.exit_code, prod.url in shown.stdout, KEY in shown.output) == (0, True, False)
    assert KEY not in repr(read_profiles())


def test_what_is_said_for_one_command_counts_more_than_the_profile(prod: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    away = "http://127.0.0.1:1"
    assert lucius("profile", "add", "away", away).exit_code == 0
    assert lucius("--server-profile", "away", "protocols").exit_code == 4
    assert lucius("--url", away, "protocols").exit_code == 4
    monkeypatch.setenv("LUCIUS_PROFILE", "away")
    assert lucius("protocols").exit_code == 4
    monkeypatch.setenv("LUCIUS_URL", prod.url)
    assert lucius("protocols").exit_code == 0
    assert prod.calls[-1][2] == ""  # LUCIUS_URL names the server, so no profile's key is sent.
    monkeypatch.setenv("LUCIUS_API_KEY", "of-the-environment")
    assert lucius("protocols").exit_code == 0
    assert prod.calls[-1][2] == "Bearer of-the-environment"
    assert lucius("--server-profile", "prod", "protocols").exit_code == 0
    assert prod.calls[-1][2] == f"Bearer {KEY}"
    assert "leave one out" in lucius("--server-profile", "prod", "--url", away, "protocols").stderr


def test_profiles_are_used_and_removed(prod: Any) -> None:
    assert lucius("profile", "add", "other", "https://lucius.example.org/").exit_code == 0
    assert lucius("profile", "use", "other").stdout == "Profile other is in use: https://lucius.example.org\n"
    listed = json.loads(lucius("profile", "list", "-o", "json").stdout)["items"]
    assert [(one["name"], one["has_key"], one["in_use"]) for one in listed] == [
        ("other", False, True), ("prod", True, False),
    ]  # fmt: skip
    assert "pass --yes" in lucius("profile", "remove", "prod").stderr
    assert lucius("profile", "remove", "prod", "--yes").exit_code == 0
    assert KEY not in profiles_file().read_text()
    assert lucius("profile", "use", "--none").exit_code == 0
    assert read_profiles().current is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("add", "prod", "http://127.0.0.1:9"), "there is a profile prod already"),
        (("add", "../x", "http://127.0.0.1:9"), "is not a name"),
        (("add", "x", "127.0.0.1:9"), "is not an address"),
        (("add", "x", "https://user:word@host"), "contains a user or a password"),
        (("use", "nobody"), "there is no profile nobody; known: prod"),
        (("use",), "Name the profile"),
        (("show", "nobody"), "there is no profile nobody"),
    ],
)
def test_what_is_wrong_with_a_profile_is_told(prod: Any, arguments: tuple[str, ...], sentence: str) -> None:
    shown = lucius("profile", *arguments)
    assert (shown.exit_code, sentence in shown.stderr) == (2, True)


def test_a_broken_file_is_named_and_stops_no_command_that_needs_no_server(tmp_path: Path) -> None:
    profiles_file().parent.mkdir(parents=True)
    profiles_file().write_text("{}")
    shown = lucius("protocols")
    assert (shown.exit_code, str(profiles_file()) in shown.stderr) == (2, True)
    assert lucius("version").exit_code == 0
    assert lucius("--url", "http://127.0.0.1:1", "protocols").exit_code == 4


def test_there_are_no_profiles_without_a_file() -> None:
    assert read_profiles() == ServerProfiles()
