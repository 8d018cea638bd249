// Service Bus: only wakes somebody; the truth is in PostgreSQL. Hence no duplicate detection (a task is sent again under
// the same id), a short lock (a message is completed when its task is leased) and a life of days.
param location string
param prefix string
param skuName string
param closed bool
param workspaceId string

var queues = [
  {
    // What waits for its turn is given back every few minutes; what fails is set aside with its reason (submissions.py).
    name: 'orchestrator-jobs'
    lockDuration: 'PT1M'
    maxDeliveryCount: 1000
    defaultMessageTimeToLive: 'P7D'
  }
  {
    name: 'functionapp-tasks'
    lockDuration: 'PT1M'
    maxDeliveryCount: 20
    defaultMessageTimeToLive: 'P7D'
  }
  {
    name: 'container-tasks'
    lockDuration: 'PT5M'
    maxDeliveryCount: 20
    defaultMessageTimeToLive: 'P14D'
  }
]

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: '${prefix}-bus'
  location: location
  // Private endpoints are Premium's alone.
  sku: { name: closed ? 'Premium' : skuName }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: closed ? 'Disabled' : 'Enabled'
    zoneRedundant: closed
  }
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = [for one in queues: {
  parent: namespace
  name: one.name
  properties: {
    lockDuration: one.lockDuration
    maxDeliveryCount: one.maxDeliveryCount
    defaultMessageTimeToLive: one.defaultMessageTimeToLive
    deadLetteringOnMessageExpiration: true
    requiresDuplicateDetection: false
    requiresSession: false
    enablePartitioning: false
  }
}]

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: namespace
  properties: {
    workspaceId: workspaceId
    logs: [ { category: 'OperationalLogs', enabled: true } ]
    metrics: [ { category: 'AllMetrics', enabled: true } ]
  }
}

output namespaceId string = namespace.id
