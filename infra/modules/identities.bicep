// One identity a process: what one of them may do stands in roles.bicep.
param location string
param prefix string

resource orchestrator 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${prefix}-orchestrator'
  location: location
}

resource worker 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${prefix}-worker'
  location: location
}

resource serving 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${prefix}-serving'
  location: location
}

resource gateway 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${prefix}-gateway'
  location: location
}

resource deploy 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${prefix}-deploy'
  location: location
}

output orchestratorId string = orchestrator.id
output orchestratorClientId string = orchestrator.properties.clientId
output orchestratorPrincipal string = orchestrator.properties.principalId
output workerId string = worker.id
output workerClientId string = worker.properties.clientId
output workerPrincipal string = worker.properties.principalId
output servingId string = serving.id
output servingClientId string = serving.properties.clientId
output servingPrincipal string = serving.properties.principalId
output gatewayId string = gateway.id
output gatewayClientId string = gateway.properties.clientId
output gatewayPrincipal string = gateway.properties.principalId
output deployId string = deploy.id
output deployClientId string = deploy.properties.clientId
output deployPrincipal string = deploy.properties.principalId
