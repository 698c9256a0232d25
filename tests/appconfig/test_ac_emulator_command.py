"""`lucius appconfig-emulator` as its user sees it: a process, a connection string, an outage, an end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from azure.appconfiguration import ConfigurationSetting
from azure.appconfiguration.aio import AzureAppConfigurationClient
from azure.core.exceptions import ServiceRequestError
from click.testing import CliRunner

from lucius.cli.main import cli

SECONDS = 30.0


async def line_of(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await stream.readline()).decode().strip()


async def test_it_prints_a_connection_string_that_works_plays_an_outage_and_ends_on_a_signal() -> None:
    words = ("-m", "lucius.cli.main", "appconfig-emulator", "--port", "0", "--secret", "c2VjcmV0")
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(SECONDS):
            connection = await line_of(running.stdout)
            assert "in memory only" in await line_of(running.stderr)
            async with AzureAppConfigurationClient.from_connection_string(connection, retry_total=0) as client:
                await client.set_configuration_setting(ConfigurationSetting(key="k", value="v"))
                os.kill(running.pid, signal.SIGUSR1)
                assert "An outage" in await line_of(running.stderr)
                with pytest.raises(ServiceRequestError):
                    await client.get_configuration_setting("k")
                os.kill(running.pid, signal.SIGUSR2)
                assert "is over" in await line_of(running.stderr)
                assert (await client.get_configuration_setting("k")).value == "v"
            running.terminate()
            assert await running.wait() == 0
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


def test_other_machines_need_a_secret_that_is_base64() -> None:
    asked = CliRunner().invoke(cli, ["appconfig-emulator", "--host", "0.0.0.0"])
    assert (asked.exit_code, "--secret" in asked.output) == (2, True)
    asked = CliRunner().invoke(cli, ["appconfig-emulator", "--secret", "&"])
    assert (asked.exit_code, "Base64" in asked.output) == (2, True)
