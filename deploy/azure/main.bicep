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

resource workspaceContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: blobs
  name: 'workspace'
}

resource documentsContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: blobs
  name: 'documents'
}

resource registryContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: blobs
  name: 'registry'
}

// Identity of the roles of LUCIUS.
resource server 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-server'
  location: location
}

resource serverCredential0 'Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials@2023-01-31' = {
  parent: server
  name: 'kubernetes-0'
  properties: {
    issuer: oidcIssuerUrl
    subject: 'system:serviceaccount:${kubernetesNamespace}:${releaseName}'
    audiences: ['api://AzureADTokenExchange']
  }
}

resource serverCredential1 'Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials@2023-01-31' = {
  parent: server
  name: 'kubernetes-1'
  properties: {
    issuer: oidcIssuerUrl
    subject: 'system:serviceaccount:${kubernetesNamespace}:${releaseName}-migration'
    audiences: ['api://AzureADTokenExchange']
  }
  dependsOn: [serverCredential0]
}

// Azure Service Bus Data Sender
resource serverAzureServiceBusDataSender 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(namespace.id, server.id, '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39')
  scope: namespace
  properties: {
    principalId: server.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39')
  }
}

// Azure Service Bus Data Receiver
resource serverAzureServiceBusDataReceiver 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(namespace.id, server.id, '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0')
  scope: namespace
  properties: {
    principalId: server.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0')
  }
}

// Storage Table Data Contributor
resource serverStorageTableDataContributor 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storage.id, server.id, '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3')
  scope: storage
  properties: {
    principalId: server.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3')
  }
}

// Storage Blob Data Contributor
resource serverStorageBlobDataContributor 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storage.id, server.id, 'ba92f5b4-2d11-453d-a403-e96b0029c9fe')
  scope: storage
  properties: {
    principalId: server.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'ba92f5b4-2d11-453d-a403-e96b0029c9fe')
  }
}

// App Configuration Data Reader
resource serverAppConfigurationDataReader 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(configuration.id, server.id, '516239f1-63e1-4d78-a4de-a74fb236a071')
  scope: configuration
  properties: {
    principalId: server.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '516239f1-63e1-4d78-a4de-a74fb236a071')
  }
}

// Key Vault Secrets User
resource serverKeyVaultSecretsUser 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, server.id, '4633458b-17de-408a-b874-0445c86b69e6')
  scope: vault
  properties: {
    principalId: server.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '4633458b-17de-408a-b874-0445c86b69e6')
  }
}

output serverClientId string = server.properties.clientId

// Identity of platform services: they have no access to the ledger, the registry and the secrets of LUCIUS.
resource services 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-services'
  location: location
}

resource servicesCredential0 'Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials@2023-01-31' = {
  parent: services
  name: 'kubernetes-0'
  properties: {
    issuer: oidcIssuerUrl
    subject: 'system:serviceaccount:${kubernetesNamespace}:${releaseName}-services'
    audiences: ['api://AzureADTokenExchange']
  }
}

// Azure Service Bus Data Sender
resource servicesAzureServiceBusDataSender 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(namespace.id, services.id, '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39')
  scope: namespace
  properties: {
    principalId: services.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39')
  }
}

// Azure Service Bus Data Receiver
resource servicesAzureServiceBusDataReceiver 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(namespace.id, services.id, '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0')
  scope: namespace
  properties: {
    principalId: services.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0')
  }
}

// Storage Blob Data Contributor
resource servicesStorageBlobDataContributor 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storage.id, services.id, 'ba92f5b4-2d11-453d-a403-e96b0029c9fe')
  scope: storage
  properties: {
    principalId: services.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'ba92f5b4-2d11-453d-a403-e96b0029c9fe')
  }
}

output servicesClientId string = services.properties.clientId

// Identity of the operator of KEDA: it counts messages, which Azure allows to owners alone.
resource scaler 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-scaler'
  location: location
}

resource scalerCredential0 'Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials@2023-01-31' = {
  parent: scaler
  name: 'kubernetes-0'
  properties: {
    issuer: oidcIssuerUrl
    subject: 'system:serviceaccount:keda:keda-operator'
    audiences: ['api://AzureADTokenExchange']
  }
}

// Azure Service Bus Data Owner
resource scalerAzureServiceBusDataOwner 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(namespace.id, scaler.id, '090c5cfd-751d-490a-894a-3ce6f1109419')
  scope: namespace
  properties: {
    principalId: scaler.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '090c5cfd-751d-490a-894a-3ce6f1109419')
  }
}

output scalerClientId string = scaler.properties.clientId

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
