// Orchestrator and serving as Web Apps for containers. The images listen on 8080; the settings' names are those of
// docs/configuration.md, and a test compares both.
param location string
param prefix string
param buildId string
param skuName string
param orchestratorInstances int
param servingInstances int
param subnetId string
param orchestratorIdentityId string
param orchestratorClientId string
param servingIdentityId string
param servingClientId string
param databaseHost string
param entraIssuer string
param entraAudience string
param entraJwksUrl string
param entraPlatformsJson string
param publicGatewayUrl string
param publicOrchestratorUrl string
param publicServingUrl string
param publicExternalUrl string
param exportsExternally bool
param scaleMetricsUrl string
param insightsConnection string
param workspaceId string

var server = '${prefix}acr.azurecr.io'
var vaultUri = 'https://${prefix}-vault${environment().suffixes.keyvaultDns}/secrets'
var bus = '${prefix}-bus.servicebus.windows.net'

// What the platform reads, not the process.
var platformSettings = {
  WEBSITES_PORT: '8080'
  // A drain takes 5 s; the platform would wait no longer than this.
  WEBSITES_CONTAINER_STOP_TIME_LIMIT: '120'
  WEBSITES_ENABLE_APP_SERVICE_STORAGE: 'false'
  WEBSITE_HEALTHCHECK_MAXPINGFAILURES: '3'
  APPLICATIONINSIGHTS_CONNECTION_STRING: insightsConnection
}

var commonSettings = {
  LOG_LEVEL: 'INFO'
  LOG_FORMAT: 'json'
  ENVIRONMENT: 'production'
  POSTGRES_HOST: databaseHost
  POSTGRES_PORT: '5432'
  POSTGRES_DB: 'geodag'
  USE_MANAGED_IDENTITY: 'true'
  IDENTITY_MODE: 'entra'
  API_KEYS_FILE: '/var/lib/geodag/keys.json'
  ENTRA_ISSUER: entraIssuer
  ENTRA_AUDIENCE: entraAudience
  ENTRA_JWKS_URL: entraJwksUrl
  ENTRA_PLATFORMS_FILE: '/var/lib/geodag/platforms.json'
  PUBLIC_SERVING_URL: publicServingUrl
}

// Files that the entry point writes from variables, because an App Service has no other way to give a container one.
var fileSettings = {
  GEODAG_FILE_KEYS: '@Microsoft.KeyVault(SecretUri=${vaultUri}/api-keys)'
  GEODAG_FILE_PLATFORMS: entraPlatformsJson
}

var orchestratorSettings = union(commonSettings, {
  POSTGRES_USER: 'geodag_orchestrator'
  DB_ADMIN_MANAGED_IDENTITY_CLIENT_ID: orchestratorClientId
  ORCHESTRATOR_HOST: '0.0.0.0'
  ORCHESTRATOR_PORT: '8080'
  ORCHESTRATOR_POLL_INTERVAL: '5'
  WORKFLOWS_DIR: '/app/workflows'
  AZURE_STORAGE_ACCOUNT_NAME: '${prefix}{zone}'
  SERVICE_BUS_FQDN: bus
  UPLOAD_KEY: '@Microsoft.KeyVault(SecretUri=${vaultUri}/upload-key)'
  SECRETS_KEY: '@Microsoft.KeyVault(SecretUri=${vaultUri}/secrets-key)'
  PUBLIC_GATEWAY_URL: publicGatewayUrl
  PUBLIC_ORCHESTRATOR_URL: publicOrchestratorUrl
  PUBLIC_EXTERNAL_URL: publicExternalUrl
  EXTERNAL_EXPORT: string(exportsExternally)
  SCALE_METRICS_URL: scaleMetricsUrl
})

var servingSettings = union(commonSettings, {
  POSTGRES_USER: 'geodag_serving'
  DB_ADMIN_MANAGED_IDENTITY_CLIENT_ID: servingClientId
  SERVING_HOST: '0.0.0.0'
  SERVING_PORT: '8080'
  AZURE_STORAGE_ACCOUNT_NAME: '${prefix}{zone}'
})

resource plan 'Microsoft.Web/serverfarms@2023-12-01' = {
  name: '${prefix}-plan'
  location: location
  kind: 'linux'
  sku: { name: skuName, capacity: max(orchestratorInstances, servingInstances) }
  properties: { reserved: true, zoneRedundant: max(orchestratorInstances, servingInstances) > 1 }
}

resource orchestrator 'Microsoft.Web/sites@2023-12-01' = {
  name: '${prefix}-orchestrator'
  location: location
  kind: 'app,linux,container'
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${orchestratorIdentityId}': {} } }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    clientAffinityEnabled: false
    keyVaultReferenceIdentity: orchestratorIdentityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: {
      linuxFxVersion: 'DOCKER|${server}/${prefix}-orchestrator:${buildId}'
      acrUseManagedIdentityCreds: true
      acrUserManagedIdentityID: orchestratorClientId
      alwaysOn: true
      healthCheckPath: '/livez'
      numberOfWorkers: orchestratorInstances
      minTlsVersion: '1.2'
      ftpsState: 'Disabled'
      http20Enabled: true
      vnetRouteAllEnabled: !empty(subnetId)
    }
  }
}

resource orchestratorConfig 'Microsoft.Web/sites/config@2023-12-01' = {
  parent: orchestrator
  name: 'appsettings'
  properties: union(platformSettings, fileSettings, { RUN_MODE: 'orchestrator' }, orchestratorSettings)
}

resource serving 'Microsoft.Web/sites@2023-12-01' = {
  name: '${prefix}-serving'
  location: location
  kind: 'app,linux,container'
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${servingIdentityId}': {} } }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    clientAffinityEnabled: false
    keyVaultReferenceIdentity: servingIdentityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: {
      linuxFxVersion: 'DOCKER|${server}/${prefix}-worker:${buildId}'
      acrUseManagedIdentityCreds: true
      acrUserManagedIdentityID: servingClientId
      alwaysOn: true
      healthCheckPath: '/livez'
      numberOfWorkers: servingInstances
      minTlsVersion: '1.2'
      ftpsState: 'Disabled'
      http20Enabled: true
      vnetRouteAllEnabled: !empty(subnetId)
    }
  }
}

resource servingConfig 'Microsoft.Web/sites/config@2023-12-01' = {
  parent: serving
  name: 'appsettings'
  properties: union(platformSettings, fileSettings, { RUN_MODE: 'serving' }, servingSettings)
}

// Tiles follow the CPU. Orchestrators do not scale by themselves: two of them do 150 jobs a second (bench/README.md).
resource scaling 'Microsoft.Insights/autoscalesettings@2022-10-01' = {
  name: '${prefix}-serving-scale'
  location: location
  properties: {
    enabled: true
    targetResourceUri: plan.id
    profiles: [
      {
        name: 'cpu'
        capacity: { minimum: string(max(orchestratorInstances, servingInstances)), maximum: '10', default: string(max(orchestratorInstances, servingInstances)) }
        rules: [
          {
            metricTrigger: { metricName: 'CpuPercentage', metricResourceUri: plan.id, timeGrain: 'PT1M', statistic: 'Average', timeWindow: 'PT5M', timeAggregation: 'Average', operator: 'GreaterThan', threshold: 70 }
            scaleAction: { direction: 'Increase', type: 'ChangeCount', value: '1', cooldown: 'PT5M' }
          }
          {
            metricTrigger: { metricName: 'CpuPercentage', metricResourceUri: plan.id, timeGrain: 'PT1M', statistic: 'Average', timeWindow: 'PT15M', timeAggregation: 'Average', operator: 'LessThan', threshold: 30 }
            scaleAction: { direction: 'Decrease', type: 'ChangeCount', value: '1', cooldown: 'PT15M' }
          }
        ]
      }
    ]
  }
}

resource orchestratorLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: orchestrator
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'AppServiceConsoleLogs', enabled: true }
      { category: 'AppServicePlatformLogs', enabled: true }
      { category: 'AppServiceHTTPLogs', enabled: true }
    ]
  }
}

resource servingLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: serving
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'AppServiceConsoleLogs', enabled: true }
      { category: 'AppServicePlatformLogs', enabled: true }
      { category: 'AppServiceHTTPLogs', enabled: true }
    ]
  }
}

output orchestratorUrl string = 'https://${orchestrator.properties.defaultHostName}'
output servingUrl string = 'https://${serving.properties.defaultHostName}'
