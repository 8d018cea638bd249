// Both images. Tags are immutable by how scripts/deploy.sh makes them, and it refuses one that exists.
param location string
param prefix string
param closed bool
param workspaceId string

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' = {
  name: '${prefix}acr'
  location: location
  // Private endpoints are Premium's alone; the same tier replicates by zone.
  sku: { name: closed ? 'Premium' : 'Standard' }
  properties: {
    adminUserEnabled: false
    anonymousPullEnabled: false
    publicNetworkAccess: closed ? 'Disabled' : 'Enabled'
  }
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: registry
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'ContainerRegistryLoginEvents', enabled: true }
      { category: 'ContainerRegistryRepositoryEvents', enabled: true }
    ]
  }
}

output server string = registry.properties.loginServer
