// geodag on Azure: everything of specification §16, from nothing, into one resource group.
//   az deployment group create -g <group> -f infra/main.bicep -p <your>.bicepparam
// tests/azure/infra compares these files with one table (queues, roles, settings, resources); run `az bicep build`
// beside it, because no compiler can be had where those tests run. What each part is for: docs/operations.md.
targetScope = 'resourceGroup'

@description('Where everything lies.')
param location string = resourceGroup().location
@description('Start of every name; lower case letters and digits.')
@minLength(3)
@maxLength(14)
param prefix string
@description('Tag of both images: immutable, as scripts/deploy.sh makes it.')
param buildId string
@description('Object id of the Entra group that administers PostgreSQL and the vault.')
param administratorsObjectId string
@description('Display name of that group.')
param administratorsName string
@description('Issuer of callers\' tokens.')
param entraIssuer string
@description('Audience of callers\' tokens.')
param entraAudience string
@description('Where the issuer publishes its signing keys.')
param entraJwksUrl string
@description('JSON {application or object id: platform_id}.')
param entraPlatformsJson string
@description('Where partners reach the gateway.')
param publicGatewayUrl string
@description('Where partners reach upload addresses.')
param publicOrchestratorUrl string
@description('Where readers reach tiles, STAC and downloads.')
param publicServingUrl string
@description('Where everybody reads the external zone, e.g. a Front Door before it; empty: addresses are told to nobody.')
param publicExternalUrl string = ''
@description('Copies versions that become public to the external zone.')
param exportsExternally bool = true
@description('Object ids of partners\' applications that submit by queue.')
param submitterObjectIds array = []
@description('Who is told of alerts.')
param alertEmail string
@description('Puts databases, queues, blobs, vault and registry behind private endpoints and closes their public doors.')
param privateEndpoints bool = false
@description('Resource id of the virtual network\'s subnet for private endpoints; needed with privateEndpoints.')
param endpointSubnetId string = ''
@description('Resource id of the subnet that App Service and Functions send from; needed with privateEndpoints.')
param appsSubnetId string = ''
@description('Resource id of the subnet of the Container Apps environment; needed with privateEndpoints.')
param workersSubnetId string = ''
@description('Plan of orchestrator and serving.')
param appsSku string = 'P1v3'
@description('Orchestrators: equal, any number, at least two for takeover.')
@minValue(1)
param orchestratorInstances int = 2
@minValue(1)
param servingInstances int = 2
@description('Most heavy tasks at a time.')
param heavyWorkersMax int = 10
@description('What runs heavy work: executions of a job of Container Apps, none when there is none, or an App Service.')
@allowed([ 'jobs', 'appService' ])
param heavyWorkersOn string = 'jobs'
@description('Plan of heavy workers on an App Service: memory for one task, and disk for its files.')
param heavyWorkersSku string = 'P2v3'
@description('Most light workers.')
param lightWorkersMax int = 4
param databaseSku string = 'Standard_D2ds_v5'
param databaseStorageGiB int = 128
param databaseHighAvailability bool = true
param serviceBusSku string = 'Standard'
@description('Resource id of a Data Factory that copies public versions out; empty: the worker copies by itself.')
param dataFactoryId string = ''

// About the plan of modules/heavysite.bicep, which its autoscale reads.
var scaleMetricsUrl = 'https://${location}.monitoring.azure.com${resourceId('Microsoft.Web/serverfarms', '${prefix}-worker-plan')}/metrics'

module monitoring 'modules/monitoring.bicep' = {
  name: 'monitoring'
  params: { location: location, prefix: prefix }
}

module identities 'modules/identities.bicep' = {
  name: 'identities'
  params: { location: location, prefix: prefix }
}

module registry 'modules/registry.bicep' = {
  name: 'registry'
  params: { location: location, prefix: prefix, closed: privateEndpoints, workspaceId: monitoring.outputs.workspaceId }
}

module messaging 'modules/messaging.bicep' = {
  name: 'messaging'
  params: {
    location: location
    prefix: prefix
    skuName: serviceBusSku
    closed: privateEndpoints
    workspaceId: monitoring.outputs.workspaceId
  }
}

module storage 'modules/storage.bicep' = {
  name: 'storage'
  params: { location: location, prefix: prefix, closed: privateEndpoints, workspaceId: monitoring.outputs.workspaceId }
}

module database 'modules/database.bicep' = {
  name: 'database'
  params: {
    location: location
    prefix: prefix
    skuName: databaseSku
    storageGiB: databaseStorageGiB
    highAvailability: databaseHighAvailability
    administratorsObjectId: administratorsObjectId
    administratorsName: administratorsName
    closed: privateEndpoints
    workspaceId: monitoring.outputs.workspaceId
  }
}

module vault 'modules/vault.bicep' = {
  name: 'vault'
  params: {
    location: location
    prefix: prefix
    closed: privateEndpoints
    administratorsObjectId: administratorsObjectId
    workspaceId: monitoring.outputs.workspaceId
  }
}

module roles 'modules/roles.bicep' = {
  name: 'roles'
  params: {
    prefix: prefix
    orchestratorPrincipal: identities.outputs.orchestratorPrincipal
    workerPrincipal: identities.outputs.workerPrincipal
    servingPrincipal: identities.outputs.servingPrincipal
    gatewayPrincipal: identities.outputs.gatewayPrincipal
    deployPrincipal: identities.outputs.deployPrincipal
    submitterObjectIds: submitterObjectIds
    dataFactoryId: dataFactoryId
  }
  dependsOn: [ registry, messaging, storage, vault ]
}

module network 'modules/network.bicep' = if (privateEndpoints) {
  name: 'network'
  params: { location: location, prefix: prefix, subnetId: endpointSubnetId }
  dependsOn: [ registry, messaging, storage, database, vault ]
}

module sites 'modules/sites.bicep' = {
  name: 'sites'
  params: {
    location: location
    prefix: prefix
    buildId: buildId
    skuName: appsSku
    orchestratorInstances: orchestratorInstances
    servingInstances: servingInstances
    subnetId: appsSubnetId
    orchestratorIdentityId: identities.outputs.orchestratorId
    orchestratorClientId: identities.outputs.orchestratorClientId
    servingIdentityId: identities.outputs.servingId
    servingClientId: identities.outputs.servingClientId
    databaseHost: database.outputs.host
    entraIssuer: entraIssuer
    entraAudience: entraAudience
    entraJwksUrl: entraJwksUrl
    entraPlatformsJson: entraPlatformsJson
    publicGatewayUrl: publicGatewayUrl
    publicOrchestratorUrl: publicOrchestratorUrl
    publicServingUrl: publicServingUrl
    publicExternalUrl: publicExternalUrl
    exportsExternally: exportsExternally
    scaleMetricsUrl: heavyWorkersOn == 'appService' ? scaleMetricsUrl : ''
    insightsConnection: monitoring.outputs.insightsConnection
    workspaceId: monitoring.outputs.workspaceId
  }
  dependsOn: [ roles ]
}

module workers 'modules/workers.bicep' = {
  name: 'workers'
  params: {
    location: location
    prefix: prefix
    buildId: buildId
    subnetId: workersSubnetId
    workspaceId: monitoring.outputs.workspaceId
    lightWorkersMax: lightWorkersMax
    heavyWorkersMax: heavyWorkersMax
    heavyJobs: heavyWorkersOn == 'jobs'
    workerIdentityId: identities.outputs.workerId
    workerClientId: identities.outputs.workerClientId
    deployIdentityId: identities.outputs.deployId
    deployClientId: identities.outputs.deployClientId
    databaseHost: database.outputs.host
    orchestratorUrl: sites.outputs.orchestratorUrl
    dataFactoryId: dataFactoryId
  }
  dependsOn: [ roles ]
}

module heavysite 'modules/heavysite.bicep' = if (heavyWorkersOn == 'appService') {
  name: 'heavysite'
  params: {
    location: location
    prefix: prefix
    buildId: buildId
    skuName: heavyWorkersSku
    instancesMax: heavyWorkersMax
    subnetId: appsSubnetId
    workerIdentityId: identities.outputs.workerId
    workerClientId: identities.outputs.workerClientId
    orchestratorPrincipal: identities.outputs.orchestratorPrincipal
    settings: workers.outputs.heavySettings
    insightsConnection: monitoring.outputs.insightsConnection
    workspaceId: monitoring.outputs.workspaceId
  }
}

module gateway 'modules/gateway.bicep' = {
  name: 'gateway'
  params: {
    location: location
    prefix: prefix
    buildId: buildId
    subnetId: appsSubnetId
    gatewayIdentityId: identities.outputs.gatewayId
    gatewayClientId: identities.outputs.gatewayClientId
    databaseHost: database.outputs.host
    orchestratorUrl: sites.outputs.orchestratorUrl
    servingUrl: sites.outputs.servingUrl
    entraIssuer: entraIssuer
    entraAudience: entraAudience
    entraJwksUrl: entraJwksUrl
    publicGatewayUrl: publicGatewayUrl
    publicServingUrl: publicServingUrl
    publicExternalUrl: publicExternalUrl
    insightsConnection: monitoring.outputs.insightsConnection
    workspaceId: monitoring.outputs.workspaceId
  }
  dependsOn: [ roles ]
}

module alerts 'modules/alerts.bicep' = {
  name: 'alerts'
  params: {
    location: location
    prefix: prefix
    email: alertEmail
    workspaceId: monitoring.outputs.workspaceId
    namespaceId: messaging.outputs.namespaceId
    databaseId: database.outputs.serverId
  }
}

output registryServer string = registry.outputs.server
output orchestratorUrl string = sites.outputs.orchestratorUrl
output servingUrl string = sites.outputs.servingUrl
output gatewayUrl string = gateway.outputs.url
