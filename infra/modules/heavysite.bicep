// Heavy workers as a Web App for containers, where Container Apps may not be used (main.bicep: heavyWorkersOn). An App
// Service can ask nobody for a number, so the orchestrators write it about this plan, once a minute, as a custom metric
// of Azure Monitor: it is that of GET /api/v1/scale/container-tasks and stays above 0 while a lease lives, so instances
// are taken away only when no task runs at all.
param location string
param prefix string
param buildId string
param skuName string
param instancesMax int
param subnetId string
param workerIdentityId string
param workerClientId string
param orchestratorPrincipal string
param settings object
param insightsConnection string
param workspaceId string

var server = '${prefix}acr.azurecr.io'
var vaultUri = 'https://${prefix}-vault${environment().suffixes.keyvaultDns}/secrets'
// Monitoring Metrics Publisher
var publisher = '3913510d-42f4-4e42-8a64-420c390055eb'

// What the platform reads, not the process.
var platformSettings = {
  WEBSITES_PORT: '8080'
  // A drain takes 5 s; the platform would wait no longer than this.
  WEBSITES_CONTAINER_STOP_TIME_LIMIT: '120'
  WEBSITES_ENABLE_APP_SERVICE_STORAGE: 'false'
  WEBSITE_HEALTHCHECK_MAXPINGFAILURES: '3'
  APPLICATIONINSIGHTS_CONNECTION_STRING: insightsConnection
}

// An app stays on; only an execution of a job ends when it is idle.
var ownSettings = {
  RUN_MODE: 'worker'
  WORKER_EXIT_WHEN_IDLE_SECONDS: '0'
  WORKER_SERVICE_KEY: '@Microsoft.KeyVault(SecretUri=${vaultUri}/worker-service-key)'
}

resource plan 'Microsoft.Web/serverfarms@2023-12-01' = {
  name: '${prefix}-worker-plan'
  location: location
  kind: 'linux'
  sku: { name: skuName, capacity: 1 }
  properties: { reserved: true }
}

resource worker 'Microsoft.Web/sites@2023-12-01' = {
  name: '${prefix}-worker'
  location: location
  kind: 'app,linux,container'
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${workerIdentityId}': {} } }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    clientAffinityEnabled: false
    keyVaultReferenceIdentity: workerIdentityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: {
      linuxFxVersion: 'DOCKER|${server}/${prefix}-worker:${buildId}'
      acrUseManagedIdentityCreds: true
      acrUserManagedIdentityID: workerClientId
      alwaysOn: true
      healthCheckPath: '/livez'
      minTlsVersion: '1.2'
      ftpsState: 'Disabled'
      http20Enabled: true
      vnetRouteAllEnabled: !empty(subnetId)
    }
  }
}

resource workerConfig 'Microsoft.Web/sites/config@2023-12-01' = {
  parent: worker
  name: 'appsettings'
  properties: union(platformSettings, settings, ownSettings)
}

// One instance runs one heavy task at a time (WORKER_SLOTS_PROCESS), so more tasks than instances ask for another.
var trigger = {
  metricName: 'tasks'
  metricNamespace: 'geodag'
  metricResourceUri: plan.id
  dimensions: [ { DimensionName: 'queue', Operator: 'Equals', Values: [ 'container-tasks' ] } ]
  timeGrain: 'PT1M'
  // Every orchestrator writes the same number.
  statistic: 'Max'
  timeAggregation: 'Maximum'
}

resource scaling 'Microsoft.Insights/autoscalesettings@2022-10-01' = {
  name: '${prefix}-worker-scale'
  location: location
  properties: {
    enabled: true
    targetResourceUri: plan.id
    profiles: [
      {
        name: 'tasks'
        capacity: { minimum: '1', maximum: string(instancesMax), default: '1' }
        rules: [
          {
            metricTrigger: union(trigger, { operator: 'GreaterThan', threshold: 1, dividePerInstance: true, timeWindow: 'PT5M' })
            scaleAction: { direction: 'Increase', type: 'ChangeCount', value: '1', cooldown: 'PT2M' }
          }
          {
            metricTrigger: union(trigger, { operator: 'LessThan', threshold: 1, dividePerInstance: false, timeWindow: 'PT10M' })
            scaleAction: { direction: 'Decrease', type: 'ExactCount', value: '1', cooldown: 'PT10M' }
          }
        ]
      }
    ]
  }
}

resource publishing 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(plan.id, orchestratorPrincipal, publisher)
  scope: plan
  properties: {
    principalId: orchestratorPrincipal
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', publisher)
  }
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: worker
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'AppServiceConsoleLogs', enabled: true }
      { category: 'AppServicePlatformLogs', enabled: true }
      { category: 'AppServiceHTTPLogs', enabled: true }
    ]
  }
}
