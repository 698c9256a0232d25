"""Key Vault references, with the real SDKs against stand-ins on loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from tests.azure.stand_ins import HOST, Issuer, Vault, serve_issuer, serve_vault

from lucius.azure.credential import AzureIdentity
from lucius.azure.key_vault import BadReference, KeyVault, SecretReference, SecretUnreadable, read_reference
from lucius.bootstrap import open_app
from lucius.domain.callbacks import CallbackIds, CallbackKey
from lucius.local_secrets import callback_keys
from lucius.ports.readiness import NotReady
from lucius.referenced_secrets import ReferencedSecrets
from lucius.settings import SettingsError, read_settings
from lucius.testing.servicebus.certificates import TestCertificates, make_certificates

VALUE = "nobody-may-see-this-value"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TestCertificates:
    return make_certificates(HOST, tmp_path_factory.mktemp("ca"))


@pytest.fixture
async def vault(certificates: TestCertificates, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Vault]:
    async with serve_issuer(Issuer()) as issuer, serve_vault(Vault(issuer), certificates.context) as vault:
        for name, value in issuer.app_service.items():
            monkeypatch.setenv(name, value)
        yield vault


@pytest.fixture
async def client(vault: Vault, certificates: TestCertificates) -> AsyncIterator[KeyVault]:
    async with AzureIdentity("managed") as identity:
        client = KeyVault(identity, str(certificates.ca_file))
        yield client
        await client.close()


def test_references_are_what_people_write() -> None:
    assert read_reference("keyvault://acme/api-keys") == SecretReference("acme.vault.azure.net", "api-keys")
    assert read_reference("keyvault://acme.vault.azure.cn/a/0123abc") == ("acme.vault.azure.cn", "a", "0123abc")
    of_app_configuration = '{"uri": "https://acme.vault.azure.net/secrets/webhook"}'
    assert read_reference(of_app_configuration) == ("acme.vault.azure.net", "webhook", "")
    assert str(read_reference(of_app_configuration)) == "keyvault://acme.vault.azure.net/webhook"
    for plain in ("", "lk_secret", "k1:0123456789abcdef", '{"uri": 3}', "{", "https://acme.vault.azure.net/secrets/a"):
        assert read_reference(plain) is None


@pytest.mark.parametrize(
    "text",
    [
        "keyvault://", "keyvault://acme", "keyvault://acme/", "keyvault://acme/a/b/c", "keyvault://acme/a/",
        "keyvault://user@acme/a", "keyvault://acme/a?b", "keyvault://acme/%2e", "keyvault://acme#x/a",
        '{"uri": "http://acme.vault.azure.net/secrets/a"}', '{"uri": "https://acme.vault.azure.net/keys/a"}',
    ],
)  # fmt: skip
def test_a_reference_that_names_no_secret_is_refused(text: str) -> None:
    with pytest.raises(BadReference, match="Key Vault reference"):
        read_reference(text)


@pytest.mark.parametrize("kind", ["app service", "imds"])
async def test_a_secret_is_read_as_the_managed_identity(
    kind: str, vault: Vault, client: KeyVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "imds":
        for name in vault.issuer.app_service:
            monkeypatch.delenv(name)
        for name, value in vault.issuer.imds.items():
            monkeypatch.setenv(name, value)
    vault.secrets["webhook"] = VALUE
    reference = read_reference(vault.reference("webhook"))
    assert reference is not None
    assert await client.get(reference) == VALUE
    assert await client.get(reference) == VALUE
    assert len(vault.issuer.asked) == 1, "the token is kept"
    assert vault.served == ["webhook", "webhook"]


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        ("missing", "the secret webhook of the vault {host} does not exist"),
        ("forbidden", "the secret webhook of the vault {host} may not be read: assign the role Key Vault Secrets User"),
        ("down", "the secret webhook of the vault {host} cannot be read: the vault answers 500"),
        ("nobody", "the secret webhook of the vault {host} cannot be read: Azure does not say who this process is"),
        ("gone", "cannot be read: the vault is out of reach"),
        ("stranger", "cannot be read: the vault is out of reach"),
    ],
)
async def test_each_failure_says_which_secret_and_what_to_do(
    problem: str,
    sentence: str,
    vault: Vault,
    client: KeyVault,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    vault.secrets["webhook"] = VALUE
    reference = SecretReference(vault.host, "webhook")
    if problem == "missing":
        del vault.secrets["webhook"]
    elif problem == "forbidden":
        vault.forbidden.add("webhook")
    elif problem == "down":
        vault.is_down = True
        monkeypatch.setattr("asyncio.sleep", _no_wait)
    elif problem == "nobody":
        monkeypatch.setenv("IDENTITY_HEADER", "wrong")
    elif problem == "gone":
        monkeypatch.setattr("asyncio.sleep", _no_wait)
        reference = SecretReference(f"{HOST}:1", "webhook")
    else:
        # A vault whose challenge names another domain is given no token.
        monkeypatch.setattr(Vault, "resource", "https://vault.azure.net")
    with caplog.at_level(logging.DEBUG), pytest.raises(SecretUnreadable) as caught:
        await client.get(reference)
    assert sentence.format(host=vault.host) in str(caught.value)
    assert VALUE not in str(caught.value) + caplog.text
    assert not any(token in caplog.text + str(caught.value) for token in vault.issuer.tokens)


async def _no_wait(seconds: float) -> None:
    """Retries of the SDK without their pauses."""


# --- Settings that refer to secrets ----------------------------------------------------------------------------------


async def test_settings_get_their_secrets_and_follow_them(vault: Vault, client: KeyVault) -> None:
    vault.secrets |= {"api-key": "lk_0123456789", "callbacks": "k2:" + "b" * 32, "old": "a" * 32}
    settings = read_settings(
        {
            "LUCIUS_API_KEY": vault.reference("api-key"),
            "LUCIUS_CALLBACK_KEYS": f"{vault.reference('callbacks')}, k1:{vault.reference('old')}",
        }
    )
    learned: list[tuple[str, str]] = []
    secrets = ReferencedSecrets(client, lambda place, value: learned.append((place, value)))
    resolved = await secrets.resolve(settings)
    assert resolved.api_key == "lk_0123456789"
    assert callback_keys(resolved) == (CallbackKey("k2", b"b" * 32), CallbackKey("k1", b"a" * 32))
    assert ("LUCIUS_API_KEY", "lk_0123456789") in learned

    changes: list[str] = []
    secrets.on_change(lambda: changes.append(secrets.resolved(settings).callback_keys[0]))
    await secrets.refresh()
    assert changes == []
    vault.secrets["callbacks"] = "k3:" + "c" * 32
    await secrets.refresh()
    assert changes == ["k3:" + "c" * 32]
    assert await secrets.health() == "3 of Key Vault in force"


async def test_secrets_outlive_an_outage_of_the_vault(
    vault: Vault, client: KeyVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncio.sleep", _no_wait)
    vault.secrets["api-key"] = VALUE
    secrets = ReferencedSecrets(client)
    settings = read_settings({"LUCIUS_API_KEY": vault.reference("api-key")})
    await secrets.resolve(settings)
    vault.is_down = True
    await secrets.refresh()
    assert secrets.resolved(settings).api_key == VALUE
    with pytest.raises(NotReady, match=r"LUCIUS_API_KEY: the secret api-key of the vault .* answers 500"):
        await secrets.health()
    vault.is_down = False
    await secrets.refresh()
    assert await secrets.health() == "1 of Key Vault in force"


async def test_a_start_without_its_secret_names_setting_and_secret(vault: Vault, client: KeyVault) -> None:
    settings = read_settings({"LUCIUS_CALLBACK_KEYS": f"k1:{vault.reference('callbacks')}"})
    with pytest.raises(SettingsError, match=r"LUCIUS_CALLBACK_KEYS: the secret callbacks of the vault .* not exist"):
        await ReferencedSecrets(client).resolve(settings)


def test_other_settings_cannot_be_references() -> None:
    with pytest.raises(SettingsError, match="LUCIUS_LEDGER cannot be a Key Vault reference; these can: LUCIUS_API_KEY"):
        read_settings({"LUCIUS_LEDGER": "keyvault://acme/ledger"})


async def test_a_running_application_follows_its_secrets(
    vault: Vault, certificates: TestCertificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("lucius.bootstrap.secrets.KeyVault", partial(KeyVault, ca_file=str(certificates.ca_file)))
    monkeypatch.setattr("lucius.auth.keys.CHECK_SECONDS", 0.0)
    vault.secrets |= {"api-keys": key_file("lk_first"), "callbacks": "k1:" + "a" * 32}
    settings = read_settings(
        {
            "LUCIUS_LEDGER": "memory",
            "LUCIUS_BUS": "memory",
            "LUCIUS_DATA": str(tmp_path),
            "LUCIUS_API_KEYS_FILE": vault.reference("api-keys"),
            "LUCIUS_CALLBACK_KEYS": vault.reference("callbacks"),
            "LUCIUS_SECRETS_REFRESH_SECONDS": "0.05",
        }
    )
    async with open_app(settings) as context:
        signer = context.completion._signer
        ids = CallbackIds(tenant_id="acme", job_id="j", step_id="s", attempt_no=1, lease_id="l")
        old = signer.mint(ids, 0, 60)
        assert context.authenticator.known("Bearer lk_first") is not None
        vault.secrets |= {"api-keys": key_file("lk_second"), "callbacks": f"k2:{'b' * 32},k1:{'a' * 32}"}
        await until(lambda: signer.mint(ids, 0, 60).startswith("v1.k2."))
        await until(lambda: context.authenticator.known("Bearer lk_second") is not None)
        assert context.authenticator.known("Bearer lk_first") is None
        assert signer.verifies(old, ids, 0), "tokens of the previous key are still good while it is listed"

        vault.secrets |= {"api-keys": "- nonsense", "callbacks": "short"}
        await until(lambda: context.authenticator.problem is not None)
        assert context.authenticator.known("Bearer lk_second") is not None
        assert signer.mint(ids, 0, 60).startswith("v1.k2.")
        report = await context.management.readiness.look()
        assert report.checks["secrets"].detail == "2 of Key Vault in force"
        assert f"keyvault://{vault.host}/api-keys:1: " in report.checks["api_keys"].detail


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.01)


def key_file(key: str) -> str:
    return f'- name: ops\n  sha256: {sha256(key.encode()).hexdigest()}\n  tenants: "*"\n  roles: [operate]\n'
