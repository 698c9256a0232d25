"""Storage and App Configuration by identity and by shared access signature, with Azure's real SDKs.

What is not real: tokens come from a stand-in of Entra ID, to which a pod shows the token of its service account.
Azurite looks at a token's audience, issuer and time, not at its signature, and the App Configuration stand-in takes any
token.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureSasCredential
from azure.storage.blob import generate_account_sas
from msgspec import Raw
from tests import azurite as azurites
from tests.azure.stand_ins import HOST, TENANT, Issuer, serve_issuer
from tests.azurite import ACCOUNT, KEY, Azurite
from tests.tables_ledger import new_prefix
from tests.temporal.tls_proxy import LOOPBACK, Authority, Files, Proxy, tls_proxy

from lucius.azure.blob import BlobAccount, BlobForbidden
from lucius.azure.credential import AzureIdentity
from lucius.azure.tables import TableAccount
from lucius.ledgers.tables import LAYOUTS, TablesLedger
from lucius.ports.ledger import LedgerUnavailable
from lucius.registries.appconfig.keys import PREFIX
from lucius.registries.appconfig.options import AppConfigOptions
from lucius.registries.appconfig.store import AppConfigStore, Setting, StoreFailed
from lucius.testing.appconfig.server import AppConfigServer
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock

OF_THE_POD = "the token of the service account"
STORAGE = "https://storage.azure.com"
LARGE = Raw(b'"' + b"x" * 40_000 + b'"')


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ca")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Files:
    return authority.issue(LOOPBACK)


@pytest.fixture
async def issuer(
    authority: Authority, server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Issuer]:
    """The environment is that of a pod on AKS; the SDKs trust the test's authority."""
    trusting = ssl.create_default_context(cafile=authority.cert)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert, server.key)
    token_file = tmp_path / "token"
    token_file.write_text(OF_THE_POD)
    async with serve_issuer(Issuer(), context) as issuer:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"https://{HOST}:{issuer.port}")
        monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
        monkeypatch.setenv("AZURE_CLIENT_ID", "the-managed-identity")
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token_file))
        yield issuer


@pytest.fixture
async def identity(issuer: Issuer) -> AsyncIterator[AzureIdentity]:
    async with AzureIdentity("workload") as identity:
        yield identity


async def test_a_pod_gets_tokens_for_that_of_its_service_account(identity: AzureIdentity, issuer: Issuer) -> None:
    found = [await identity.credential().get_token(f"{STORAGE}/.default") for _ in range(2)]
    assert issuer.tokens == {found[0].token: STORAGE}
    assert found[1].token == found[0].token
    assert issuer.assertions == [OF_THE_POD]


async def test_app_configuration_is_read_and_written_by_identity(
    identity: AzureIdentity, issuer: Issuer, server: Files
) -> None:
    async with AppConfigServer(accepts_tokens=True) as real, _app_configuration(real, server, identity) as found:
        store, proxy = found
        setting = Setting(f"{PREFIX}settings", "{}")
        etag = await store.write(setting)
        settings = await store.read_all()
        assert {key: (one.value, one.etag) for key, one in settings.items()} == {setting.key: ("{}", etag)}
        [token] = issuer.tokens
        assert proxy.sent.count(f"Bearer {token}".encode()) == len(real.requests) == 2
    async with AppConfigServer() as stranger, _app_configuration(stranger, server, identity) as found:
        with pytest.raises(StoreFailed, match=r"access is refused \(401\); check the credential"):
            await found[0].read_all()


@asynccontextmanager
async def _app_configuration(
    real: AppConfigServer, server: Files, identity: AzureIdentity
) -> AsyncIterator[tuple[AppConfigStore, Proxy]]:
    """Behind TLS: the SDK sends no token without it."""
    async with (
        tls_proxy(real.endpoint.removeprefix("http://"), server) as proxy,
        AppConfigStore(AppConfigOptions(address=f"appconfig://{proxy.address}"), identity) as store,
    ):
        yield store, proxy


# --- Storage ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded_azurite(pytestconfig: pytest.Config, server: Files) -> Iterator[Azurite]:
    """Over TLS, as Azurite takes tokens only there."""
    assert pytestconfig.cache is not None
    cache = Path(pytestconfig.cache.mkdir("npm"))
    with azurites.running(cache, "--oauth", "basic", "--cert", server.cert, "--key", server.key) as azurite:
        yield azurite


def _ledger(azurite: Azurite, scheme: str, of_tables: Any, of_blobs: Any) -> TablesLedger:
    tables, blobs = (f"{scheme}://{LOOPBACK}:{port}/{ACCOUNT}" for port in (azurite.table_port, azurite.blob_port))
    return TablesLedger(
        TableAccount.named(ACCOUNT, of_tables, tables), BlobAccount.named(ACCOUNT, of_blobs, blobs), LAYOUTS["ledger"],
        new_prefix(),
    )  # fmt: skip


async def _works(ledger: TablesLedger) -> None:
    """Rows and blobs are written, changed in transactions, read, listed and deleted."""
    clock = ManualClock()
    driver = LedgerDriver(ledger, clock)
    await ledger.create_tables()
    assert await ledger.missing() == []
    assert "Azure Tables" in await ledger.health()
    job = await driver.create(input_ref=LARGE)
    assert await ledger.load([job.job_id]) == {job.job_id: job}
    await driver.fail(job)
    clock.advance(1)
    assert await ledger.prune(clock.now(), 10) == 1
    assert await ledger.store.blobs.names(ledger.store.container, "", 10) == []


async def test_a_ledger_is_in_storage_by_identity(
    guarded_azurite: Azurite, identity: AzureIdentity, issuer: Issuer
) -> None:
    async with _ledger(guarded_azurite, "https", identity.credential(), identity.credential()) as ledger:
        await _works(ledger)
    assert set(issuer.tokens.values()) == {STORAGE}


async def test_a_token_for_something_else_is_refused_by_name(
    guarded_azurite: Azurite, identity: AzureIdentity, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = issuer.issue_jwt
    monkeypatch.setattr(issuer, "issue_jwt", lambda scope: own("https://vault.azure.net"))
    async with _ledger(guarded_azurite, "https", identity.credential(), identity.credential()) as ledger:
        with pytest.raises(LedgerUnavailable, match="needs the role Storage Table Data Contributor") as raised:
            await ledger.create_tables()
        with pytest.raises(BlobForbidden):
            await ledger.store.blobs.create_container("any")
    assert not [token for token in issuer.tokens if token in str(raised.value)]


def _signature(permission: str = "rwdlacu") -> str:
    until = datetime.now(UTC) + timedelta(hours=1)
    return generate_account_sas(ACCOUNT, KEY, "sco", permission, until, services="bt")


async def test_a_ledger_is_in_storage_by_shared_access_signature(azurite: Azurite) -> None:
    sas = _signature()
    async with _ledger(azurite, "http", AzureSasCredential(sas), sas) as ledger:
        await _works(ledger)


async def test_a_signature_that_allows_too_little_is_refused_without_being_told(azurite: Azurite) -> None:
    sas = _signature("r")
    async with _ledger(azurite, "http", AzureSasCredential(sas), sas) as ledger:
        with pytest.raises(LedgerUnavailable, match="needs the role Storage Table Data Contributor") as raised:
            await ledger.create_tables()
        with pytest.raises(BlobForbidden) as refused:
            await ledger.store.blobs.create_container("any")
    said = f"{raised.value} {raised.value.__cause__} {refused.value} {refused.value.__cause__}"
    assert sas.partition("sig=")[2] not in said
