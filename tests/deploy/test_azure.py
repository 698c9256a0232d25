"""The Bicep of what LUCIUS uses on Azure. Nothing here can compile it: it is parsed, and what it says is looked at."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pycep
import pytest
from tests.deploy.chart import CHART, ROOT, named, rendered
from tests.deploy.generators import load_generator

from lucius.bootstrap import bus_topics
from lucius.settings import read_settings

FOLDER = ROOT / "deploy" / "azure"
ASSIGNMENT = "Microsoft.Authorization/roleAssignments"
CREDENTIAL = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials"


@pytest.fixture(scope="module")
def parsed() -> dict[str, Any]:
    found: dict[str, Any] = pycep.BicepParser().parse(text=(FOLDER / "main.bicep").read_text())
    return found


def of_type(parsed: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {name: one["config"] for name, one in parsed["resources"].items() if one["type"] == kind}


def test_files_are_made_from_the_generator() -> None:
    for path, make in load_generator(FOLDER / "generate.py").FILES.items():
        assert path.read_text() == make(), f"{path.name} is stale: run 'make bicep'"


def test_bus_has_every_topic_and_subscription() -> None:
    """As `lucius bus provision` would create them for the registry that ships with LUCIUS."""
    resources = pycep.BicepParser().parse(text=(FOLDER / "bus.bicep").read_text())["resources"].values()
    topics = asyncio.run(bus_topics(read_settings({})))
    kind = "Microsoft.ServiceBus/namespaces/topics"
    assert [one["config"]["name"] for one in resources if one["type"] == kind] == [topic.name for topic in topics]
    names = [one["config"]["name"] for one in resources if one["type"] == f"{kind}/subscriptions"]
    assert names == [one.name for topic in topics for one in topic.subscriptions]


def test_nothing_takes_keys_and_everything_is_encrypted_on_its_way(parsed: dict[str, Any]) -> None:
    for kind in ("Microsoft.ServiceBus/namespaces", "Microsoft.AppConfiguration/configurationStores"):
        (one,) = of_type(parsed, kind).values()
        assert one["properties"]["disableLocalAuth"] is True, kind
    (storage,) = of_type(parsed, "Microsoft.Storage/storageAccounts").values()
    assert storage["properties"]["allowSharedKeyAccess"] is False
    assert storage["properties"]["allowBlobPublicAccess"] is False
    assert storage["properties"]["minimumTlsVersion"] == "TLS1_2"
    (vault,) = of_type(parsed, "Microsoft.KeyVault/vaults").values()
    assert vault["properties"]["enableRbacAuthorization"] is True


def test_each_identity_may_do_what_it_needs_and_no_more(parsed: dict[str, Any]) -> None:
    generator = load_generator(FOLDER / "generate.py")
    names = {number: role for role, number in generator.ROLES.items()}
    found: dict[str, set[tuple[str, str]]] = {}
    for one in of_type(parsed, ASSIGNMENT).values():
        properties = one["properties"]
        symbol = properties["principalId"]["operator"]["operands"]["operand_1"]
        role = properties["roleDefinitionId"]["function"]["parameters"]["resource_name_1"]
        found.setdefault(symbol, set()).add((names[role], one["scope"]))
    assert found == {
        "server": {
            ("Azure Service Bus Data Sender", "namespace"),
            ("Azure Service Bus Data Receiver", "namespace"),
            ("Storage Table Data Contributor", "storage"),
            ("Storage Blob Data Contributor", "storage"),
            ("App Configuration Data Reader", "configuration"),
            ("Key Vault Secrets User", "vault"),
        },
        "services": {
            ("Azure Service Bus Data Sender", "namespace"),
            ("Azure Service Bus Data Receiver", "namespace"),
            ("Storage Blob Data Contributor", "storage"),
        },
        "scaler": {("Azure Service Bus Data Owner", "namespace")},
    }


def test_every_name_that_is_used_is_declared(parsed: dict[str, Any]) -> None:
    known = {*parsed["resources"], *parsed["parameters"], *parsed["variables"], *parsed["modules"]}
    for name, one in parsed["resources"].items():
        config = one["config"]
        for word in (config.get("parent"), config.get("scope"), *config.get("dependsOn", [])):
            assert word is None or word in known, f"{name} refers to {word}"


def test_credentials_are_for_the_accounts_that_the_chart_has(parsed: dict[str, Any]) -> None:
    subjects = {one["properties"]["subject"] for one in of_type(parsed, CREDENTIAL).values()}
    objects = rendered(CHART / "ci" / "azure-values.yaml")
    accounts = [one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"]
    assert accounts
    prefix = "system:serviceaccount:"
    made = {f"{prefix}${{kubernetesNamespace}}:{name.replace('lucius', '${releaseName}', 1)}" for name in accounts}
    assert subjects == made | {f"{prefix}keda:keda-operator"}


def test_settings_that_it_gives_are_settings_of_lucius(parsed: dict[str, Any]) -> None:
    given = parsed["outputs"]["settings"]["value"]
    read_settings({name: value if isinstance(value, str) else "text" for name, value in given.items()})
    values = named(rendered(CHART / "ci" / "azure-values.yaml"), "Deployment", "lucius-orchestrator")
    used = {one["name"] for one in values["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert set(given) <= used, json.dumps(sorted(set(given) - used))
