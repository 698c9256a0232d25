"""Makes the Bicep of what LUCIUS uses on Azure: `make bicep`. A test compares it with what is committed.

`bus.bicep` has the topics and subscriptions, from the model of `lucius bus provision`, for the registry that ships with
LUCIUS. `main.bicep` has everything else: namespace, storage, App Configuration, Key Vault, identities and their roles.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from lucius.bootstrap import bus_topics
from lucius.buses.servicebus.printing import as_bicep
from lucius.settings import read_settings

FOLDER = Path(__file__).parent

ROLES = {
    "Azure Service Bus Data Owner": "090c5cfd-751d-490a-894a-3ce6f1109419",
    "Azure Service Bus Data Receiver": "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0",
    "Azure Service Bus Data Sender": "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39",
    "Storage Blob Data Contributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "Storage Table Data Contributor": "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3",
    "App Configuration Data Reader": "516239f1-63e1-4d78-a4de-a74fb236a071",
    "Key Vault Secrets User": "4633458b-17de-408a-b874-0445c86b69e6",
}
"""Azure's built-in roles and their ids, which are the same everywhere."""

CONTAINERS = ("workspace", "documents", "registry")


class Identity(NamedTuple):
    symbol: str
    meaning: str
    accounts: tuple[str, ...]
    """The Kubernetes service accounts that use it, as the chart names them: `namespace:name`."""
    roles: tuple[tuple[str, str], ...]
    """A built-in role, and the resource on which it holds."""


IDENTITIES = (
    Identity(
        "server",
        "the roles of LUCIUS",
        ("${kubernetesNamespace}:${releaseName}", "${kubernetesNamespace}:${releaseName}-migration"),
        (
            ("Azure Service Bus Data Sender", "namespace"),
            ("Azure Service Bus Data Receiver", "namespace"),
            ("Storage Table Data Contributor", "storage"),
            ("Storage Blob Data Contributor", "storage"),
            ("App Configuration Data Reader", "configuration"),
            ("Key Vault Secrets User", "vault"),
        ),
    ),
    Identity(
        "services",
        "platform services: they have no access to the ledger, the registry and the secrets of LUCIUS",
        ("${kubernetesNamespace}:${releaseName}-services",),
        (
            ("Azure Service Bus Data Sender", "namespace"),
            ("Azure Service Bus Data Receiver", "namespace"),
            ("Storage Blob Data Contributor", "storage"),
        ),
    ),
    Identity(
        "scaler",
        "the operator of KEDA: it counts messages, which Azure allows to owners alone",
        ("keda:keda-operator",),
        (("Azure Service Bus Data Owner", "namespace"),),
    ),
)

HEAD = """\
// What LUCIUS uses on Azure. Made by deploy/azure/generate.py. Never compiled and never deployed: review it first.
//   az deployment group create -g GROUP -f deploy/azure/main.bicep -p name=acme oidcIssuerUrl=URL

@description('The beginning of every name')
@minLength(3)
@maxLength(11)
param name string

param location string = resourceGroup().location

@description('The OIDC issuer of the cluster: az aks show --query oidcIssuerProfile.issuerUrl')
param oidcIssuerUrl string

@description('Where the chart is installed')
param kubernetesNamespace string = 'lucius'

@description('The release of the chart; it must contain lucius, or fullnameOverride must be this')
param releaseName string = 'lucius'

@allowed(['Standard', 'Premium'])
param busTier string = 'Standard'

@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GZRS'])
param storageKind string = 'Standard_ZRS'

var unique = uniqueString(resourceGroup().id)

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: '${name}-${unique}'
  location: location
  sku: {
    name: busTier
    tier: busTier
  }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
  }
}

module bus 'bus.bicep' = {
  name: 'lucius-bus'
  params: {
    namespaceName: namespace.name
  }
}

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: '${name}${unique}'
  location: location
  kind: 'StorageV2'
  sku: {
    name: storageKind
  }
  properties: {
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: storage
  name: 'default'
}

resource tables 'Microsoft.Storage/storageAccounts/tableServices@2023-05-01' = {
  parent: storage
  name: 'default'
}

resource configuration 'Microsoft.AppConfiguration/configurationStores@2024-05-01' = {
  name: '${name}-${unique}'
  location: location
  sku: {
    name: 'standard'
  }
  properties: {
    disableLocalAuth: true
    enablePurgeProtection: true
  }
}

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' = {
  name: '${name}${unique}'
  location: location
  properties: {
    tenantId: subscription().tenantId
    sku: {
      family: 'A'
      name: 'standard'
    }
    enableRbacAuthorization: true
    enablePurgeProtection: true
  }
}
"""

OUTPUTS = """\
@description('Settings of LUCIUS, for the values of the chart')
output settings object = {
  LUCIUS_AZURE_CREDENTIAL: 'workload'
  LUCIUS_BUS: 'servicebus'
  LUCIUS_SERVICEBUS_NAMESPACE: '${namespace.name}.servicebus.windows.net'
  LUCIUS_STORAGE_ACCOUNT: storage.name
  LUCIUS_REGISTRY: 'appconfig://${configuration.name}.azconfig.io'
  LUCIUS_REGISTRY_CONTAINER: 'registry'
}

output vaultName string = vault.name
"""


def container(name: str) -> str:
    return f"""\
resource {name}Container 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {{
  parent: blobs
  name: '{name}'
}}
"""


def identity(one: Identity) -> str:
    parts = [
        f"""\
// Identity of {one.meaning}.
resource {one.symbol} 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {{
  name: '${{name}}-{one.symbol}'
  location: location
}}
"""
    ]
    parts += [credential(one, place) for place in range(len(one.accounts))]
    parts += [assignment(one.symbol, role, resource) for role, resource in one.roles]
    parts.append(f"output {one.symbol}ClientId string = {one.symbol}.properties.clientId\n")
    return "\n".join(parts)


def credential(one: Identity, place: int) -> str:
    """Azure refuses to write two of the same identity at once, so each waits for the one before."""
    waits = f"  dependsOn: [{one.symbol}Credential{place - 1}]\n" if place else ""
    kind = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials@2023-01-31"
    return f"""\
resource {one.symbol}Credential{place} '{kind}' = {{
  parent: {one.symbol}
  name: 'kubernetes-{place}'
  properties: {{
    issuer: oidcIssuerUrl
    subject: 'system:serviceaccount:{one.accounts[place]}'
    audiences: ['api://AzureADTokenExchange']
  }}
{waits}}}
"""


def assignment(symbol: str, role: str, resource: str) -> str:
    word = "".join(part.capitalize() for part in role.split())
    return f"""\
// {role}
resource {symbol}{word} 'Microsoft.Authorization/roleAssignments@2022-04-01' = {{
  name: guid({resource}.id, {symbol}.id, '{ROLES[role]}')
  scope: {resource}
  properties: {{
    principalId: {symbol}.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '{ROLES[role]}')
  }}
}}
"""


def main_bicep() -> str:
    return "\n".join([HEAD, *map(container, CONTAINERS), *map(identity, IDENTITIES), OUTPUTS])


def bus_bicep() -> str:
    topics = asyncio.run(bus_topics(read_settings({})))
    return as_bicep(topics) + "\n"


FILES = {FOLDER / "main.bicep": main_bicep, FOLDER / "bus.bicep": bus_bicep}

if __name__ == "__main__":
    for path, make in FILES.items():
        path.write_text(make())
