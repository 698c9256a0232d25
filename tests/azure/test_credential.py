"""The one credential of a process."""

from __future__ import annotations

import logging

import pytest

from lucius.azure.credential import CREDENTIALS, AzureIdentity, open_credential
from lucius.bootstrap import open_app
from lucius.settings import Settings, SettingsError, read_settings
from lucius.telemetry import configure_logs


async def test_a_credential_is_opened_once_and_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    class Credential:
        async def close(self) -> None:
            opened.append("closed")

    def open_one(name: str, client_id: str) -> Credential:
        opened.append(f"{name} {client_id}")
        return Credential()

    monkeypatch.setattr("lucius.azure.credential.open_credential", open_one)
    async with AzureIdentity("workload", "one-of-several"):
        pass
    assert opened == []
    async with AzureIdentity("workload", "one-of-several") as identity:
        assert identity.credential() is identity.credential()
    assert opened == ["workload one-of-several", "closed"]


async def test_every_name_is_a_credential_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.setenv(name, "00000000-0000-0000-0000-000000000000")
    for name in CREDENTIALS:
        credential = open_credential(name)
        await credential.close()


async def test_an_unknown_credential_is_refused_by_name() -> None:
    settings = read_settings({"LUCIUS_LEDGER": "memory", "LUCIUS_BUS": "memory", "LUCIUS_AZURE_CREDENTIAL": "probe"})
    with pytest.raises(SettingsError, match="LUCIUS_AZURE_CREDENTIAL='probe': must be one of managed, workload"):
        async with open_app(settings):
            pass


def test_no_key_of_a_connection_is_in_a_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever an SDK or a driver puts into its errors."""
    secrets = {name: f"{name}-0123456789abcdef" for name in ("storage", "bus", "administration", "registry", "nats")}
    settings = Settings(
        storage_connection=f"AccountName=a;AccountKey={secrets['storage']};BlobEndpoint=http://127.0.0.1/a;",
        servicebus_connection=f"Endpoint=sb://a;SharedAccessKeyName=n;SharedAccessKey={secrets['bus']};",
        servicebus_administration=f"Endpoint=sb://a;SharedAccessKeyName=n;SharedAccessKey={secrets['administration']}",
        appconfig_connection=f"Endpoint=https://a;Id=n;Secret={secrets['registry']}",
        nats_token=secrets["nats"],
        runbooks_database="postgresql://lucius:the-password@db/runbooks",
        log_format="text",
    )
    root = logging.getLogger()
    before = list(root.handlers), root.level
    try:
        configure_logs(settings)
        logging.getLogger("lucius").error("refused: %s; %s", settings.runbooks_database, sorted(secrets.values()))
        logging.getLogger("azure").error("refused: %s", settings.servicebus_connection)
    finally:
        root.handlers[:], level = before
        root.setLevel(level)
    said = capsys.readouterr().err
    assert said.count("refused") == 2
    assert [secret for secret in (*secrets.values(), "the-password") if secret in said] == []
