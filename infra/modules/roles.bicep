// Who may do what, and no more: each assignment names one identity, one scope, one built-in role. No Owner anywhere.
param prefix string
param orchestratorPrincipal string
param workerPrincipal string
param servingPrincipal string
param gatewayPrincipal string
param deployPrincipal string
param submitterObjectIds array
param dataFactoryId string

var ids = {
  acrPull: '7f951dda-4ed3-4680-a7ca-43fe172d538d'
  busSender: '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
  busReceiver: '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
  blobReader: '2a2b9908-6ea1-4ae2-8e65-a410df84e7d1'
  blobContributor: 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
  blobDelegator: 'db58b8e5-c6ad-4a2a-8342-4190687cbf4a'
  secretsUser: '4633458b-17de-408a-b874-0445c86b69e6'
}

// (scope, identity, role): Service Bus, each queue by itself.
var queueGrants = [
  { queue: 'orchestrator-jobs', who: 'orchestrator', role: 'busReceiver' }
  { queue: 'orchestrator-jobs', who: 'orchestrator', role: 'busSender' }
  { queue: 'functionapp-tasks', who: 'orchestrator', role: 'busSender' }
  { queue: 'functionapp-tasks', who: 'orchestrator', role: 'busReceiver' }
  { queue: 'container-tasks', who: 'orchestrator', role: 'busSender' }
  { queue: 'container-tasks', who: 'orchestrator', role: 'busReceiver' }
  { queue: 'functionapp-tasks', who: 'worker', role: 'busReceiver' }
  { queue: 'container-tasks', who: 'worker', role: 'busReceiver' }
]
// Blobs, each container by itself. What workers may write in bronze is narrowed to fetched copies below.
var containerGrants = [
  { zone: 'bronze', who: 'orchestrator', role: 'blobContributor' }
  { zone: 'silver', who: 'orchestrator', role: 'blobContributor' }
  { zone: 'bronze', who: 'worker', role: 'blobReader' }
  { zone: 'silver', who: 'worker', role: 'blobContributor' }
  { zone: 'external', who: 'worker', role: 'blobContributor' }
  { zone: 'silver', who: 'serving', role: 'blobReader' }
  { zone: 'external', who: 'serving', role: 'blobReader' }
]
// Delegation keys are the account's; with one nobody signs more than he may do himself.
var delegationGrants = [
  { zone: 'bronze', who: 'orchestrator' }
  { zone: 'bronze', who: 'worker' }
  { zone: 'silver', who: 'worker' }
  { zone: 'silver', who: 'serving' }
  { zone: 'external', who: 'serving' }
]
// Secrets, each by itself.
var secretGrants = [
  { secret: 'api-keys', who: 'orchestrator' }
  { secret: 'upload-key', who: 'orchestrator' }
  { secret: 'secrets-key', who: 'orchestrator' }
  { secret: 'api-keys', who: 'serving' }
  { secret: 'gateway-service-key', who: 'gateway' }
  { secret: 'worker-service-key', who: 'worker' }
  { secret: 'scale-key', who: 'worker' }
]
var pullers = [ 'orchestrator', 'worker', 'serving', 'deploy' ]
var principals = {
  orchestrator: orchestratorPrincipal
  worker: workerPrincipal
  serving: servingPrincipal
  gateway: gatewayPrincipal
  deploy: deployPrincipal
}
var zones = [ 'bronze', 'silver', 'external' ]

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' existing = {
  name: '${prefix}acr'
}

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: '${prefix}-bus'
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' existing = [for grant in queueGrants: {
  parent: namespace
  name: grant.queue
}]

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' existing = [for zone in zones: {
  name: '${prefix}${zone}'
}]

resource container 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' existing = [for grant in containerGrants: {
  name: '${prefix}${grant.zone}/default/${grant.zone}'
}]

resource bronze 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' existing = {
  name: '${prefix}bronze/default/bronze'
}

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' existing = {
  name: '${prefix}-vault'
}

resource secret 'Microsoft.KeyVault/vaults/secrets@2023-07-01' existing = [for grant in secretGrants: {
  parent: vault
  name: grant.secret
}]

resource pulls 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for who in pullers: {
  name: guid(registry.id, who, 'acrPull')
  scope: registry
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', ids.acrPull)
    principalId: principals[who]
    principalType: 'ServicePrincipal'
  }
}]

resource onQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (grant, i) in queueGrants: {
  name: guid(queue[i].id, grant.who, grant.role)
  scope: queue[i]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', ids[grant.role])
    principalId: principals[grant.who]
    principalType: 'ServicePrincipal'
  }
}]

resource submitters 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for objectId in submitterObjectIds: {
  name: guid(queue[0].id, objectId, 'busSender')
  scope: queue[0]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', ids.busSender)
    principalId: objectId
    principalType: 'ServicePrincipal'
  }
}]

resource onContainers 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (grant, i) in containerGrants: {
  name: guid(container[i].id, grant.who, grant.role)
  scope: container[i]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', ids[grant.role])
    principalId: principals[grant.who]
    principalType: 'ServicePrincipal'
  }
}]

// The first node copies a source behind a URL to bronze/fetched/, the only place there that a worker writes to.
resource fetched 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(bronze.id, 'worker', 'fetched')
  scope: bronze
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', ids.blobContributor)
    principalId: workerPrincipal
    principalType: 'ServicePrincipal'
    conditionVersion: '2.0'
    condition: '@Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringLike \'fetched/*\''
  }
}

resource onAccounts 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for grant in delegationGrants: {
  name: guid(account[indexOf(zones, grant.zone)].id, grant.who, 'blobDelegator')
  scope: account[indexOf(zones, grant.zone)]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', ids.blobDelegator)
    principalId: principals[grant.who]
    principalType: 'ServicePrincipal'
  }
}]

resource onSecrets 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (grant, i) in secretGrants: {
  name: guid(secret[i].id, grant.who, 'secretsUser')
  scope: secret[i]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', ids.secretsUser)
    principalId: principals[grant.who]
    principalType: 'ServicePrincipal'
  }
}]

// Starts runs of the factory's pipelines and reads how they went; nothing else of it.
resource exporter 'Microsoft.Authorization/roleDefinitions@2022-04-01' = if (!empty(dataFactoryId)) {
  name: guid(resourceGroup().id, 'geodag exporter')
  properties: {
    roleName: '${prefix} exporter'
    type: 'CustomRole'
    assignableScopes: [ resourceGroup().id ]
    permissions: [
      {
        actions: [
          'Microsoft.DataFactory/factories/pipelines/createrun/action'
          'Microsoft.DataFactory/factories/pipelineruns/read'
          'Microsoft.DataFactory/factories/pipelineruns/cancel/action'
        ]
        notActions: []
      }
    ]
  }
}

resource factory 'Microsoft.DataFactory/factories@2018-06-01' existing = if (!empty(dataFactoryId)) {
  name: last(split(dataFactoryId, '/'))
}

resource exports 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(dataFactoryId)) {
  name: guid(resourceGroup().id, 'worker', 'exporter')
  scope: factory
  properties: {
    roleDefinitionId: exporter.id
    principalId: workerPrincipal
    principalType: 'ServicePrincipal'
  }
}
