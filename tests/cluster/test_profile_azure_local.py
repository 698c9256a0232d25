"""`lucius up --profile azure-local`: emulators of Azure and every role from one command; a job in Blob and Tables."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from azure.data.tables.aio import TableServiceClient
from azure.storage.blob.aio import BlobServiceClient
from tests import azurite, node_packages
from tests.long_form import IS_LONG
from tests.profile_process import STOP_SECONDS_MAX, Profile

from lucius.cli.serve.sample import sample_command
from lucius.domain.errors import InfrastructureError
from lucius.profiles.azurite import VERSION, find_azurite
from lucius.profiles.profile import run_profile
from lucius.settings import Settings, SettingsError

ROLES = ("api", "reconciler", "runbooks", "scheduler")
PARTS = ("postgres", "azurite", "servicebus", "appconfig", *ROLES, "services")
KILLED = ("servicebus", "appconfig", *ROLES, "services") if IS_LONG else ("appconfig", "reconciler")
SECRETS = ("api-key", "storage-key", "servicebus-key", "appconfig-secret")


@pytest.fixture
def azurite_on_path(pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Azurite of all tests, as somebody has it who has installed it."""
    assert pytestconfig.cache is not None
    program = azurite.install(Path(pytestconfig.cache.mkdir("npm")))
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "azurite").write_text(f'#!/bin/sh\nexec "{node_packages.node_program()}" "{program}" "$@"\n')
    (folder / "azurite").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("azurite_on_path")
def test_the_sample_ends_in_blob_and_tables_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with Profile("azure-local", tmp_path, "--sample") as profile:
        for part in PARTS:
            profile.wait_for(f"{part} is starting")
        profile.wait_for(r"LUCIUS stays up at")
        job_id = profile.wait_for(r"Sample job (\S+):")
        result = profile.wait_for(r"Result: blob://documents/(\S+)")
        settings = _settings(profile)
        connection = settings["LUCIUS_STORAGE_CONNECTION"]
        blobs, rows = asyncio.run(_stored(connection, job_id))
        assert len(json.loads(blobs[f"documents/{result}"])["answers"]) == 3
        workspace = f"lucius/workspace/demo/{job_id}"
        assert f"{workspace}/OCR/1/ocr/output.txt" in blobs
        assert f"{workspace}/EMBEDDING/1/embedding/vectors.json" in blobs
        assert f"{workspace}/SIS/1/sis/result.json" in blobs
        assert rows["JOB"]["status"] == "SUCCEEDED"
        assert {key.partition(":")[0] for key in rows} == {"JOB", "STEP", "OUTBOX", "EVENT"}

        for role, address in profile.management().items():
            found = httpx.get(f"{address}/readyz", timeout=30, trust_env=False).json()
            assert found["status"] == "ok", (role, found)
            assert found["checks"]["ledger"]["detail"].startswith("Azure Tables, layout ledger"), (role, found)
        secrets = [(profile.data / name).read_text().strip() for name in SECRETS]
        for line in profile.processes().values():
            assert [secret for secret in secrets if secret in line] == [], line
        assert all(path.stat().st_mode & 0o077 == 0 for path in profile.data.iterdir())

        _kill(profile, KILLED)
        command = tmp_path / "command.json"
        command.write_text(json.dumps(sample_command(profile.data, "after-the-kills", "blob://documents")))
        done = profile.lucius("submit", str(command), "--watch", "--timeout", "60")
        assert done.returncode == 0, done.stdout + done.stderr
        examined = profile.lucius("doctor")
        assert examined.returncode == 0, examined.stdout

        profile.process.send_signal(signal.SIGTERM)
        assert profile.process.wait(STOP_SECONDS_MAX) == 0, profile.said
        assert profile.processes() == {}
        assert not (profile.data / "profile.env").exists()
        assert "Traceback" not in profile.said
    if IS_LONG:
        _run_services_apart(tmp_path)


def _run_services_apart(folder: Path) -> None:
    """The profile without services on the same data: a job waits until they are started with the settings it prints."""
    with Profile("azure-local", folder, "--no-services") as profile, (folder / "services.log").open("wb") as log:
        profile.wait_for(r"LUCIUS is up at")
        assert not any("lucius.cli.main platform" in line for line in profile.processes().values())
        command = folder / "command.json"
        command.write_text(json.dumps(sample_command(profile.data, "services-apart", "blob://documents")))
        waiting = profile.lucius("submit", str(command), "--watch", "--timeout", "2")
        assert waiting.returncode == 5, waiting.stdout + waiting.stderr
        services = profile.start("platform", "ocr", "embedding", "sis", output=log)
        try:
            done = profile.lucius("submit", str(command), "--watch", "--timeout", "60")
            assert done.returncode == 0, done.stdout + done.stderr
        finally:
            services.terminate()
            services.wait(STOP_SECONDS_MAX)
        profile.process.send_signal(signal.SIGTERM)
        assert profile.process.wait(STOP_SECONDS_MAX) == 0, profile.said


def _settings(profile: Profile) -> dict[str, str]:
    lines = (profile.data / "profile.env").read_text().splitlines()
    return {name: value.strip("'") for name, _, value in (line.partition("=") for line in lines)}


async def _stored(connection: str, job_id: str) -> tuple[dict[str, bytes], dict[str, dict[str, object]]]:
    """Every blob by container and name, and the rows of a job by their keys."""
    blobs: dict[str, bytes] = {}
    async with BlobServiceClient.from_connection_string(connection) as service:
        for container in ("documents", "lucius"):
            client = service.get_container_client(container)
            async for name in client.list_blob_names():
                blobs[f"{container}/{name}"] = await (await client.download_blob(name)).readall()
    async with TableServiceClient.from_connection_string(connection) as tables:
        found = tables.get_table_client("luciusledger").query_entities(
            "PartitionKey eq @job", parameters={"job": job_id}
        )
        rows = {row["RowKey"]: dict(row) async for row in found}
    return blobs, rows


def _kill(profile: Profile, parts: Sequence[str]) -> None:
    """With `kill -9`, all at the same time."""
    words = {"servicebus": "servicebus-emulator", "appconfig": "appconfig-emulator", "services": "platform"}
    running = profile.processes()
    for part in parts:
        victims = [pid for pid, line in running.items() if f"lucius.cli.main {words.get(part, part)}" in line]
        assert victims, (part, running)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
    for part in parts:
        profile.wait_for(f"{part} is back")


# --- Azurite ---------------------------------------------------------------------------------------------------------


def test_azurite_that_cannot_be_installed_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    said: list[str] = []
    with pytest.raises(InfrastructureError) as failed:
        find_azurite(tmp_path / "data", said.append)
    assert "ECONNREFUSED" in failed.value.detail
    assert f"npm install -g azurite@{VERSION}" in failed.value.detail
    assert said[0].startswith(f"Azurite {VERSION} is being installed from npm into {tmp_path}/data")
    assert list((tmp_path / "data").iterdir()) == []


if IS_LONG:

    @pytest.mark.timeout(600)
    def test_azurite_is_installed_once(tmp_path: Path) -> None:
        said: list[str] = []
        command = find_azurite(tmp_path, said.append)
        assert find_azurite(tmp_path, said.append) == command
        assert Path(command[-1]).is_file()
        assert len(said) <= 1


# --- Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(bus="nats://127.0.0.1:4222"), "leave LUCIUS_BUS out"),
        (Settings(ledger="postgresql://nowhere/lucius"), "leave LUCIUS_LEDGER out"),
        (Settings(registry="appconfig://acme.azconfig.io"), "brings its own App Configuration"),
        (Settings(runbooks_database="off"), "leave LUCIUS_RUNBOOKS_DATABASE out"),
    ],
)
def test_settings_that_contradict_the_profile_are_refused(settings: Settings, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        run_profile("azure-local", settings)
