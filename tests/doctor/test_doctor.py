"""`lucius doctor`: each part broken in turn, on real servers, gives its sentence and its remedy."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.azure.stand_ins import HOST, Issuer, Vault, serve_issuer, serve_vault
from tests.azurite import KEY, Azurite
from tests.nats_server import NatsServer, free_port
from tests.servicebus_server import ServerThread
from tests.tables_ledger import opened_ledger

from lucius import registries
from lucius.azure.blob import BlobAccount
from lucius.azure.key_vault import KeyVault
from lucius.cli.main import cli
from lucius.doctor import Diagnosis, examine_all
from lucius.settings import SettingsError, read_settings
from lucius.sql import schema
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.appconfig.server import AppConfigServer
from lucius.testing.registry_suite import PROTOCOL
from lucius.testing.servicebus.certificates import make_certificates

KEYS = "k1:0123456789abcdef"
STRANGER = "https://login.example"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def examined(seconds: float = 15.0, **variables: str) -> dict[str, Diagnosis]:
    settings = read_settings({f"LUCIUS_{name.upper()}": value for name, value in variables.items()})
    return {one.part: one for one in await examine_all(settings, seconds)}


async def only_wrong(seconds: float = 15.0, **variables: str) -> Diagnosis:
    found = await examined(seconds, **variables)
    (wrong,) = [one for one in found.values() if not one.ok]
    assert wrong.remedy
    return wrong


async def test_an_archive_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert (await examined(archive=(tmp_path / "archive").as_uri()))["archive"].ok
    wrong = await only_wrong(archive=(tmp_path / "file").as_uri())
    assert wrong.part == "archive"


async def test_nothing_is_wrong_and_nothing_is_made_before_the_first_start(tmp_path: Path) -> None:
    found = await examined()
    assert all(one.ok and one.remedy is None for one in found.values()), found
    assert list(found) == [
        "data folder", "ledger", "schema", "clock", "bus", "registry", "workspace", "notifications", "secrets",
        "api keys",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


async def test_a_running_server_answers_for_its_file(sqlite_database: SqliteDatabase) -> None:
    found = await examined(ledger=f"sqlite:///{sqlite_database.path}", callback_keys=KEYS, api_key="k")
    assert found["ledger"].ok
    assert found["ledger"].detail.endswith("is in use by a running LUCIUS: its /readyz answers for it")


# --- Each part broken ------------------------------------------------------------------------------------------------


async def test_postgresql(postgres_url: str) -> None:
    shared = {"callback_keys": KEYS, "api_key": "lk_key"}
    found = await examined(ledger=postgres_url, **shared)
    assert [one.part for one in found.values() if not one.ok] == []
    assert found["schema"].detail.startswith("version ")
    wrong = await only_wrong(ledger=postgres_url, clock_skew_seconds_max="-1", **shared)
    assert (wrong.part, wrong.remedy) == ("clock", "Let this machine follow a time server (NTP).")
    found = await examined(ledger=f"postgresql://u:the-password@{HOST}:{free_port()}/lucius", **shared)
    assert not found["ledger"].ok
    assert "See that PostgreSQL runs" in str(found["ledger"].remedy)
    assert found["schema"].detail == "not asked: the ledger's database cannot be opened"
    assert found["schema"].remedy == "Mend the part that is named first."
    assert "the-password" not in str(found)


async def test_azure_tables(azurite: Azurite) -> None:
    shared = {"callback_keys": KEYS, "api_key": "lk_key", "bus": "memory", "ledger": "aztables:ledger"}
    async with opened_ledger(azurite, "ledger") as ledger:
        connected = {**shared, "storage_connection": azurite.connection, "table_prefix": ledger.store.prefix}
        found = await examined(**connected)
        assert [one for one in found.values() if not one.ok] == []
        assert found["schema"].detail == "every table is there, and the container"
        assert found["clock"].detail.endswith("from Azure Storage's")
        wrong = await only_wrong(**{**connected, "bus": "sql"})
        assert (wrong.part, wrong.detail.split(";")[0]) == ("bus", "LUCIUS_BUS=sql needs a ledger in SQL")
        await ledger.store.blobs._service.delete_container(ledger.store.container)
        found = await examined(**connected)
        for name in ("ledger", "schema"):
            assert ledger.store.container in found[name].detail
            assert "lucius db upgrade" in f"{found[name].detail} {found[name].remedy}"
    found = await examined(**connected)
    assert "lucius db upgrade" in found["ledger"].detail
    assert f"table {ledger.store.prefix}ledger" in found["schema"].detail
    away = azurite.connection.replace(f":{azurite.table_port}/", f":{free_port()}/")
    found = await examined(**{**connected, "storage_connection": away})
    assert "out of reach" in found["ledger"].detail
    for name in ("schema", "clock"):
        assert found[name].detail == "not asked: the ledger does not answer"
        assert found[name].remedy == "Mend the part that is named first."
    assert KEY not in str(found)


async def test_a_database_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "old.db").touch()
    wrong = await only_wrong(ledger=f"sqlite:///{tmp_path / 'old.db'}")
    assert (wrong.part, wrong.remedy) == ("schema", "Run `lucius db upgrade` with this version.")


async def test_nats(nats_server: NatsServer) -> None:
    found = await examined(bus=nats_server.url)
    assert found["bus"].detail.startswith("NATS at ")
    wrong = await only_wrong(seconds=2, bus=f"nats://{HOST}:{free_port()}")
    assert (wrong.part, wrong.remedy) == ("bus", "See that NATS runs with JetStream, and LUCIUS_BUS and LUCIUS_NATS_*.")


async def test_service_bus_without_its_topics(servicebus_server: ServerThread, tmp_path: Path) -> None:
    await asyncio.to_thread(servicebus_server.forget)  # An earlier test may have left topics behind.
    options = servicebus_server.administration(tmp_path)
    wrong = await only_wrong(
        bus="servicebus",
        servicebus_connection=options.connection,
        servicebus_administration=options.administration,
        servicebus_administration_ca_file=options.administration_ca_file,
    )
    assert wrong.part == "entities"
    assert wrong.detail.startswith("topic orchestrator-events is missing; topic jobs is missing;")
    assert "lucius bus provision" in str(wrong.remedy)


async def test_temporal() -> None:
    wrong = await only_wrong(engine="temporal", temporal_address=f"{HOST}:{free_port()}")
    assert wrong.part == "temporal"
    assert "is unreachable" in wrong.detail


async def test_registry(tmp_path: Path) -> None:
    (tmp_path / "registry" / "tenants").mkdir(parents=True)
    (tmp_path / "registry" / "tenants" / "acme.yaml").write_text("id: acme\nsurprise: 1\n")
    found = await examined(registry=str(tmp_path / "registry"))
    assert "tenants/acme.yaml:2: surprise is not a known field" in found["registry"].detail
    assert str(found["registry"].remedy).startswith("Mend the file or key")


async def test_registry_in_app_configuration(tmp_path: Path) -> None:
    async with AppConfigServer() as server:
        server.put("lucius:protocols:SCAN:1", PROTOCOL)
        server.put("lucius:sentinel", "1")
        store = {"registry": "appconfig://", "appconfig_connection": server.connection_string, "data": "data"}
        found = await examined(**store)
        assert found["registry"].ok
        assert list(tmp_path.iterdir()) == [], "it changes nothing, so it writes no cache"
        server.put("lucius:protocols:SCAN:1", PROTOCOL.replace("service", "sevice"))
        broken = (await examined(**store))["registry"]
        assert not broken.ok
        assert "lucius:protocols:SCAN:1, line 7" in broken.detail
        assert "lucius registry diff" in str(broken.remedy)
        server.faults.unauthorized = True
        assert "access is refused (401)" in (await examined(**store))["registry"].detail


async def test_workspace_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = await only_wrong(workspace_root=(tmp_path / "file").as_uri())
    assert (wrong.part, wrong.detail) == ("workspace", f"{tmp_path / 'file'} is no folder")


async def test_workspace_in_blob(azurite: Azurite) -> None:
    async with BlobAccount.connected(azurite.connection) as account:
        await account.create_container("doctors-workspace")
    connection = azurite.connection
    found = await examined(workspace_root="blob://doctors-workspace/lucius", storage_connection=connection)
    assert found["workspace"].ok
    assert found["workspace"].detail.startswith("blob://doctors-workspace/lucius of the account ")
    wrong = await only_wrong(workspace_root="blob://no-such-container/lucius", storage_connection=connection)
    assert wrong.part == "workspace"
    assert "create the container" in wrong.detail
    assert "Storage Blob Data Contributor" in str(wrong.remedy)
    assert KEY not in str(found) + str(wrong)


async def test_workspace_that_only_services_reach() -> None:
    found = await examined(workspace_root="blob://work/lucius")
    assert found["workspace"].detail == "blob://…, which only services use; not asked"


async def test_data_folder_open_to_others(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data").chmod(0o755)
    wrong = await only_wrong(data=str(tmp_path / "data"))
    assert (wrong.part, wrong.detail) == ("data folder", f"{tmp_path / 'data'} is open to other users: mode 755")


async def test_keys_that_a_shared_ledger_needs(postgres_url: str) -> None:
    found = await examined(ledger=postgres_url)
    assert "LUCIUS_CALLBACK_KEYS is not set" in found["secrets"].detail
    assert "nobody can log in" in found["api keys"].detail


async def test_api_keys(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text("- nonsense\n")
    wrong = await only_wrong(api_keys_file="keys.yaml")
    assert (wrong.part, wrong.detail.split(": ")[0]) == ("api keys", "LUCIUS_API_KEYS_FILE")
    wrong = await only_wrong(jwt_issuer=STRANGER, jwt_audience="lucius", jwks_url=f"http://{HOST}:{free_port()}/keys")
    assert "the token issuer's keys cannot be fetched" in wrong.detail


@pytest.fixture
async def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Vault]:
    certificates = make_certificates(HOST, tmp_path)
    for module in ("lucius.bootstrap.secrets", "lucius.doctor.trust"):
        monkeypatch.setattr(f"{module}.KeyVault", partial(KeyVault, ca_file=str(certificates.ca_file)))
    async with serve_issuer(Issuer()) as issuer, serve_vault(Vault(issuer), certificates.context) as vault:
        for name, value in issuer.app_service.items():
            monkeypatch.setenv(name, value)
        yield vault


async def test_secrets_and_identity(vault: Vault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(Path(registries.__file__).parent / "shipped", tmp_path / "registry")
    (tmp_path / "registry" / "tenants").mkdir(exist_ok=True)
    (tmp_path / "registry" / "tenants" / "acme.yaml").write_text(
        f"id: acme\nwebhook_secret: {vault.reference('hook')}\n"
    )
    vault.secrets |= {"callbacks": KEYS, "hook": "the-value-of-it"}
    variables = {
        "callback_keys": vault.reference("callbacks"), "storage_account": "acme", "registry": str(tmp_path / "registry")
    }  # fmt: skip
    found = await examined(**variables)
    assert [one for one in found.values() if not one.ok] == []
    assert found["identity"].detail == "managed: tokens for storage.azure.com"
    assert found["secrets"].detail == "callback keys set; 1 settings in Key Vault"
    vault.forbidden.add("hook")
    wrong = await only_wrong(**variables)
    assert wrong.part == "secrets"
    assert wrong.detail.startswith(f"tenant acme: the secret hook of the vault {vault.host} may not be read")
    vault.forbidden.clear()
    monkeypatch.setenv("IDENTITY_HEADER", "of another machine")
    found = await examined(**variables)
    assert found["identity"].detail.startswith("no token for https://storage.azure.com: ")
    assert not found["secrets"].ok
    assert KEYS not in str(found)


async def test_a_part_that_never_answers_keeps_nobody_waiting() -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(swallow, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    try:
        found = await examined(seconds=0.3, bus=f"nats://{HOST}:{port}")
    finally:
        server.close()
    assert found["bus"].detail == "no answer within 0.3 s"
    assert found["registry"].ok


async def test_settings_that_name_no_part_are_refused() -> None:
    with pytest.raises(SettingsError, match="LUCIUS_AZURE_CREDENTIAL"):
        await examined(azure_credential="probe")


# --- The command -----------------------------------------------------------------------------------------------------


def test_the_command_says_it_in_a_hundred_columns_and_in_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("LUCIUS_")]:
        monkeypatch.delenv(name)
    assert CliRunner().invoke(cli, ["doctor"]).exit_code == 0
    (tmp_path / "file").touch()
    monkeypatch.setenv("LUCIUS_WORKSPACE_ROOT", (tmp_path / "file").as_uri())
    said = CliRunner().invoke(cli, ["doctor"])
    assert said.exit_code == 1
    assert "workspace      WRONG" in said.stdout
    assert "→ Give the user that runs LUCIUS" in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 100
    said = CliRunner().invoke(cli, ["doctor", "--output", "json"])
    assert said.exit_code == 1
    answer = json.loads(said.stdout)
    assert answer["ok"] is False
    assert [one["part"] for one in answer["parts"] if not one["ok"]] == ["workspace"]


async def test_runbooks_in_a_database_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "runbooks.db"
    assert (await examined(runbooks_database="off"))["runbooks"].detail.startswith("runbooks are off")
    assert (await examined(runbooks_database=f"sqlite:///{file}"))["runbooks"].detail == "is made by the first start"
    async with SqliteDatabase(file) as database:
        await schema.upgrade(database)
        found = (await examined(runbooks_database=f"sqlite:///{file}"))["runbooks"]
        assert (found.ok, "is in use by a running LUCIUS" in found.detail) == (True, True)
    found = (await examined(runbooks_database=f"sqlite:///{file}"))["runbooks"]
    assert (found.ok, found.detail) == (True, f"SQLite file {file}, version {schema.VERSION}")
    (tmp_path / "empty.db").touch()
    wrong = await only_wrong(runbooks_database=f"sqlite:///{tmp_path}/empty.db")
    assert (wrong.part, "lucius db upgrade" in str(wrong.remedy)) == ("runbooks", True)
