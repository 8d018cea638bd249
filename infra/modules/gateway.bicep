// The gateway: a Functions app on Flex Consumption. Its folder is made by scripts/functions_package.py.
param location string
param prefix string
param buildId string
param subnetId string
param gatewayIdentityId string
param gatewayClientId string
param databaseHost string
param orchestratorUrl string
param servingUrl string
param entraIssuer string
param entraAudience string
param entraJwksUrl string
param publicGatewayUrl string
param publicServingUrl string
param publicExternalUrl string
param insightsConnection string
param workspaceId string

var vaultUri = 'https://${prefix}-vault${environment().suffixes.keyvaultDns}/secrets'

// What the Functions host reads, not the process.
var platformSettings = {
  AzureWebJobsStorage__accountName: '${prefix}functions'
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: gatewayClientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: insightsConnection
}

var gatewaySettings = {
  LOG_LEVEL: 'INFO'
  LOG_FORMAT: 'json'
  ENVIRONMENT: 'production'
  BUILD_ID: buildId
  POSTGRES_HOST: databaseHost
  POSTGRES_PORT: '5432'
  POSTGRES_DB: 'geodag'
  POSTGRES_USER: 'geodag_gateway'
  USE_MANAGED_IDENTITY: 'true'
  DB_ADMIN_MANAGED_IDENTITY_CLIENT_ID: gatewayClientId
  IDENTITY_MODE: 'entra'
  ENTRA_ISSUER: entraIssuer
  ENTRA_AUDIENCE: entraAudience
  ENTRA_JWKS_URL: entraJwksUrl
  // scripts/deploy.sh puts the file beside the code.
  ENTRA_PLATFORMS_FILE: '/home/site/wwwroot/platforms.json'
  ORCHESTRATOR_URL: orchestratorUrl
  GATEWAY_SERVICE_KEY: '@Microsoft.KeyVault(SecretUri=${vaultUri}/gateway-service-key)'
  GATEWAY_SERVING_URLS: servingUrl
  PUBLIC_GATEWAY_URL: publicGatewayUrl
  PUBLIC_SERVING_URL: publicServingUrl
  PUBLIC_EXTERNAL_URL: publicExternalUrl
}

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: '${prefix}functions'
  location: location
  kind: 'StorageV2'
  sku: { name: 'Standard_ZRS' }
  properties: {
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: account
  name: 'default'
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: blobs
  name: 'packages'
  properties: { publicAccess: 'None' }
}

// The host keeps its locks and the package there. Contributor is enough for HTTP triggers; nobody here is Owner.
resource ownBlobs 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, 'gateway', 'blobContributor')
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'ba92f5b4-2d11-453d-a403-e96b0029c9fe')
    principalId: reference(gatewayIdentityId, '2023-01-31').principalId
    principalType: 'ServicePrincipal'
  }
}

resource plan 'Microsoft.Web/serverfarms@2023-12-01' = {
  name: '${prefix}-gateway-plan'
  location: location
  kind: 'functionapp'
  sku: { name: 'FC1', tier: 'FlexConsumption' }
  properties: { reserved: true, zoneRedundant: true }
}

resource gateway 'Microsoft.Web/sites@2023-12-01' = {
  name: '${prefix}-gateway'
  location: location
  kind: 'functionapp,linux'
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${gatewayIdentityId}': {} } }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    keyVaultReferenceIdentity: gatewayIdentityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: { minTlsVersion: '1.2', ftpsState: 'Disabled', http20Enabled: true }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${account.properties.primaryEndpoints.blob}packages'
          authentication: { type: 'UserAssignedIdentity', userAssignedIdentityResourceId: gatewayIdentityId }
        }
      }
      runtime: { name: 'python', version: '3.12' }
      // Each instance holds one connection of the database.
      scaleAndConcurrency: { maximumInstanceCount: 40, instanceMemoryMB: 2048, alwaysReady: [ { name: 'http', instanceCount: 1 } ] }
    }
  }
}

resource gatewayConfig 'Microsoft.Web/sites/config@2023-12-01' = {
  parent: gateway
  name: 'appsettings'
  properties: union(platformSettings, gatewaySettings)
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: gateway
  properties: {
    workspaceId: workspaceId
    logs: [ { category: 'FunctionAppLogs', enabled: true } ]
  }
}

output url string = 'https://${gateway.properties.defaultHostName}'
