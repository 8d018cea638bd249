// Secrets: made by an administrator after the deployment (docs/operations.md), read by reference, each by who needs it.
param location string
param prefix string
param closed bool
param administratorsObjectId string
param workspaceId string

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' = {
  name: '${prefix}-vault'
  location: location
  properties: {
    tenantId: subscription().tenantId
    sku: { family: 'A', name: 'standard' }
    enableRbacAuthorization: true
    enableSoftDelete: true
    softDeleteRetentionInDays: 90
    enablePurgeProtection: true
    publicNetworkAccess: closed ? 'Disabled' : 'Enabled'
    networkAcls: { defaultAction: closed ? 'Deny' : 'Allow', bypass: 'AzureServices' }
  }
}

resource administrators 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, administratorsObjectId, 'secrets-officer')
  scope: vault
  properties: {
    // Key Vault Secrets Officer
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'b86a8fe4-44ce-4948-aee5-eccb2c155cd7')
    principalId: administratorsObjectId
    principalType: 'Group'
  }
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: vault
  properties: {
    workspaceId: workspaceId
    logs: [ { category: 'AuditEvent', enabled: true } ]
  }
}
