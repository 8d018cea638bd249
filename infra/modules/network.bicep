// Private endpoints: one for each thing that then closes its public door. Private DNS zones are the network owner's,
// linked by policy in most tenants, so only the endpoints stand here.
param location string
param prefix string
param subnetId string

var targets = [
  { name: 'registry', group: 'registry', id: resourceId('Microsoft.ContainerRegistry/registries', '${prefix}acr') }
  { name: 'bus', group: 'namespace', id: resourceId('Microsoft.ServiceBus/namespaces', '${prefix}-bus') }
  { name: 'pg', group: 'postgresqlServer', id: resourceId('Microsoft.DBforPostgreSQL/flexibleServers', '${prefix}-pg') }
  { name: 'vault', group: 'vault', id: resourceId('Microsoft.KeyVault/vaults', '${prefix}-vault') }
  { name: 'bronze', group: 'blob', id: resourceId('Microsoft.Storage/storageAccounts', '${prefix}bronze') }
  { name: 'silver', group: 'blob', id: resourceId('Microsoft.Storage/storageAccounts', '${prefix}silver') }
  { name: 'external', group: 'blob', id: resourceId('Microsoft.Storage/storageAccounts', '${prefix}external') }
]

resource endpoint 'Microsoft.Network/privateEndpoints@2023-11-01' = [for target in targets: {
  name: '${prefix}-${target.name}-endpoint'
  location: location
  properties: {
    subnet: { id: subnetId }
    privateLinkServiceConnections: [
      {
        name: target.name
        properties: { privateLinkServiceId: target.id, groupIds: [ target.group ] }
      }
    ]
  }
}]
