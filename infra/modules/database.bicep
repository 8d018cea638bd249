// PostgreSQL: Entra alone logs in. Extensions are allow-listed here and created by the administrator, who also makes the
// roles (docs/operations.md, "The first time"); migrations run as geodag_deploy, who is neither.
param location string
param prefix string
param skuName string
param storageGiB int
param highAvailability bool
param administratorsObjectId string
param administratorsName string
param closed bool
param workspaceId string

var extensions = [ 'POSTGIS', 'BTREE_GIST', 'UNACCENT' ]
var parameters = [
  { name: 'require_secure_transport', value: 'ON' }
  { name: 'ssl_min_protocol_version', value: 'TLSv1.2' }
  { name: 'log_checkpoints', value: 'ON' }
  { name: 'log_lock_waits', value: 'ON' }
  { name: 'log_min_duration_statement', value: '1000' }
]

resource server 'Microsoft.DBforPostgreSQL/flexibleServers@2024-08-01' = {
  name: '${prefix}-pg'
  location: location
  sku: { name: skuName, tier: startsWith(skuName, 'Standard_B') ? 'Burstable' : 'GeneralPurpose' }
  properties: {
    version: '16'
    storage: { storageSizeGB: storageGiB, autoGrow: 'Enabled' }
    backup: { backupRetentionDays: 35, geoRedundantBackup: 'Enabled' }
    highAvailability: { mode: highAvailability ? 'ZoneRedundant' : 'Disabled' }
    authConfig: { activeDirectoryAuth: 'Enabled', passwordAuth: 'Disabled', tenantId: subscription().tenantId }
    network: { publicNetworkAccess: closed ? 'Disabled' : 'Enabled' }
  }
}

resource administrators 'Microsoft.DBforPostgreSQL/flexibleServers/administrators@2024-08-01' = {
  parent: server
  name: administratorsObjectId
  properties: { principalName: administratorsName, principalType: 'Group', tenantId: subscription().tenantId }
}

resource allowed 'Microsoft.DBforPostgreSQL/flexibleServers/configurations@2024-08-01' = {
  parent: server
  name: 'azure.extensions'
  properties: { value: join(extensions, ','), source: 'user-override' }
  dependsOn: [ administrators ]
}

@batchSize(1)
resource parameter 'Microsoft.DBforPostgreSQL/flexibleServers/configurations@2024-08-01' = [for one in parameters: {
  parent: server
  name: one.name
  properties: { value: one.value, source: 'user-override' }
  dependsOn: [ allowed ]
}]

resource geodag 'Microsoft.DBforPostgreSQL/flexibleServers/databases@2024-08-01' = {
  parent: server
  name: 'geodag'
  properties: { charset: 'UTF8' }
}

// Only with public access: what runs in Azure may connect, and still needs a token.
resource azure 'Microsoft.DBforPostgreSQL/flexibleServers/firewallRules@2024-08-01' = if (!closed) {
  parent: server
  name: 'azure-services'
  properties: { startIpAddress: '0.0.0.0', endIpAddress: '0.0.0.0' }
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: server
  properties: {
    workspaceId: workspaceId
    logs: [ { category: 'PostgreSQLLogs', enabled: true } ]
    metrics: [ { category: 'AllMetrics', enabled: true } ]
  }
}

output host string = server.properties.fullyQualifiedDomainName
output serverId string = server.id
