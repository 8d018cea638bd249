// One account a zone: what is in bronze is hostile until it was read, what is in external is public.
param location string
param prefix string
param closed bool
param workspaceId string

var zones = [ 'bronze', 'silver', 'external' ]

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' = [for zone in zones: {
  name: '${prefix}${zone}'
  location: location
  kind: 'StorageV2'
  sku: { name: zone == 'silver' ? 'Standard_ZRS' : 'Standard_LRS' }
  properties: {
    accessTier: 'Hot'
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: closed ? 'Disabled' : 'Enabled'
    networkAcls: {
      defaultAction: closed ? 'Deny' : 'Allow'
      bypass: 'AzureServices'
    }
  }
}]

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = [for (zone, i) in zones: {
  parent: account[i]
  name: 'default'
  properties: {
    // A deleted blob can be had again for as long as a deleted asset can (docs/operations.md).
    deleteRetentionPolicy: { enabled: true, days: 30 }
    containerDeleteRetentionPolicy: { enabled: true, days: 30 }
    isVersioningEnabled: zone == 'silver'
  }
}]

resource container 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = [for (zone, i) in zones: {
  parent: blobs[i]
  name: zone
  properties: { publicAccess: 'None' }
}]

resource lifecycle 'Microsoft.Storage/storageAccounts/managementPolicies@2023-05-01' = {
  parent: account[0]
  name: 'default'
  properties: {
    policy: {
      rules: [
        {
          name: 'raw-files-cool-down'
          enabled: true
          type: 'Lifecycle'
          definition: {
            filters: { blobTypes: [ 'blockBlob' ] }
            actions: { baseBlob: { tierToCool: { daysAfterModificationGreaterThan: 30 } } }
          }
        }
      ]
    }
  }
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = [for (zone, i) in zones: {
  name: 'logs'
  scope: blobs[i]
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'StorageRead', enabled: zone != 'silver' }
      { category: 'StorageWrite', enabled: true }
      { category: 'StorageDelete', enabled: true }
    ]
  }
}]
