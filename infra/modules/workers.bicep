// Workers on Container Apps. Both scale on GET /api/v1/scale/{queue}, the number of unclaimed and leased tasks, which
// stays above 0 while a lease lives; a queue's length would be 0 while hour-long tasks run.
// Light work: an app whose replicas share many small tasks. Heavy work: a job whose executions each end when they have
// been idle for a minute, so that nothing scales a running task away (or modules/heavysite.bicep). The migration is a job that deploy.sh starts.
param location string
param prefix string
param buildId string
param subnetId string
param workspaceId string
param lightWorkersMax int
param heavyWorkersMax int
param heavyJobs bool
param workerIdentityId string
param workerClientId string
param deployIdentityId string
param deployClientId string
param databaseHost string
param orchestratorUrl string
param dataFactoryId string

var server = '${prefix}acr.azurecr.io'
var vaultUri = 'https://${prefix}-vault${environment().suffixes.keyvaultDns}/secrets'
var bus = '${prefix}-bus.servicebus.windows.net'

var workerSettings = {
  LOG_LEVEL: 'INFO'
  LOG_FORMAT: 'json'
  ENVIRONMENT: 'production'
  POSTGRES_HOST: databaseHost
  POSTGRES_PORT: '5432'
  POSTGRES_DB: 'geodag'
  POSTGRES_USER: 'geodag_worker'
  USE_MANAGED_IDENTITY: 'true'
  DB_ADMIN_MANAGED_IDENTITY_CLIENT_ID: workerClientId
  SERVICE_BUS_FQDN: bus
  AZURE_STORAGE_ACCOUNT_NAME: '${prefix}{zone}'
  WORKER_HEALTH_HOST: '0.0.0.0'
  WORKER_HEALTH_PORT: '8080'
  WORKER_STATE_DIR: '/var/lib/geodag/state'
  WORKER_SCRATCH_DIR: '/var/lib/geodag/scratch'
  DAG_CALLBACK_URL: '${orchestratorUrl}/api/v1/callbacks'
  ADF_FACTORY_ID: dataFactoryId
}
var lightSettings = union(workerSettings, {
  WORKER_TYPE: 'light'
  WORKER_QUEUE: 'functionapp-tasks'
  WORKER_SLOTS_INLINE: '64'
  WORKER_SLOTS_PROCESS: '1'
})
var heavySettings = union(workerSettings, {
  WORKER_TYPE: 'heavy'
  WORKER_QUEUE: 'container-tasks'
  WORKER_SLOTS_PROCESS: '1'
  WORKER_EXIT_WHEN_IDLE_SECONDS: '60'
})
var migrationSettings = {
  LOG_FORMAT: 'json'
  POSTGRES_HOST: databaseHost
  POSTGRES_PORT: '5432'
  POSTGRES_DB: 'geodag'
  POSTGRES_USER: 'geodag_deploy'
  USE_MANAGED_IDENTITY: 'true'
  DB_ADMIN_MANAGED_IDENTITY_CLIENT_ID: deployClientId
}
var workerSecrets = [
  { name: 'worker-service-key', keyVaultUrl: '${vaultUri}/worker-service-key', identity: workerIdentityId }
  { name: 'scale-key', keyVaultUrl: '${vaultUri}/scale-key', identity: workerIdentityId }
]
var serviceKey = { name: 'WORKER_SERVICE_KEY', secretRef: 'worker-service-key' }

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' existing = {
  name: last(split(workspaceId, '/'))
}

resource environmentOfWorkers 'Microsoft.App/managedEnvironments@2024-03-01' = {
  name: '${prefix}-workers'
  location: location
  properties: {
    vnetConfiguration: empty(subnetId) ? null : { infrastructureSubnetId: subnetId, internal: true }
    zoneRedundant: !empty(subnetId)
    workloadProfiles: [ { name: 'Consumption', workloadProfileType: 'Consumption' } ]
    appLogsConfiguration: {
      destination: 'log-analytics'
      logAnalyticsConfiguration: {
        customerId: workspace.properties.customerId
        sharedKey: workspace.listKeys().primarySharedKey
      }
    }
  }
}

resource light 'Microsoft.App/containerApps@2024-03-01' = {
  name: '${prefix}-worker-light'
  location: location
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${workerIdentityId}': {} } }
  properties: {
    environmentId: environmentOfWorkers.id
    configuration: {
      activeRevisionsMode: 'Single'
      registries: [ { server: server, identity: workerIdentityId } ]
      secrets: workerSecrets
    }
    template: {
      terminationGracePeriodSeconds: 120
      containers: [
        {
          name: 'worker'
          image: '${server}/${prefix}-worker:${buildId}'
          resources: { cpu: json('1.0'), memory: '2Gi' }
          env: concat([ { name: 'RUN_MODE', value: 'worker' }, serviceKey ], map(items(lightSettings), one => { name: one.key, value: one.value }))
          probes: [
            { type: 'Liveness', httpGet: { path: '/livez', port: 8080 }, initialDelaySeconds: 20, periodSeconds: 30, failureThreshold: 3 }
          ]
        }
      ]
      scale: {
        minReplicas: 1
        maxReplicas: lightWorkersMax
        rules: [
          {
            name: 'tasks'
            custom: {
              type: 'metrics-api'
              metadata: {
                url: '${orchestratorUrl}/api/v1/scale/functionapp-tasks'
                valueLocation: 'tasks'
                targetValue: '64'
                authMode: 'apiKey'
                method: 'header'
                keyParamName: 'X-API-Key'
              }
              auth: [ { secretRef: 'scale-key', triggerParameter: 'apiKey' } ]
            }
          }
        ]
      }
    }
  }
}

resource heavy 'Microsoft.App/jobs@2024-03-01' = if (heavyJobs) {
  name: '${prefix}-worker-heavy'
  location: location
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${workerIdentityId}': {} } }
  properties: {
    environmentId: environmentOfWorkers.id
    configuration: {
      triggerType: 'Event'
      // A day: longer than any handler may take, so the platform ends none.
      replicaTimeout: 86400
      // Nothing is retried here: a lease that ends is another attempt.
      replicaRetryLimit: 0
      registries: [ { server: server, identity: workerIdentityId } ]
      secrets: workerSecrets
      eventTriggerConfig: {
        parallelism: 1
        replicaCompletionCount: 1
        scale: {
          minExecutions: 0
          maxExecutions: heavyWorkersMax
          pollingInterval: 15
          rules: [
            {
              name: 'tasks'
              type: 'metrics-api'
              metadata: {
                url: '${orchestratorUrl}/api/v1/scale/container-tasks'
                valueLocation: 'tasks'
                targetValue: '1'
                authMode: 'apiKey'
                method: 'header'
                keyParamName: 'X-API-Key'
              }
              auth: [ { secretRef: 'scale-key', triggerParameter: 'apiKey' } ]
            }
          ]
        }
      }
    }
    template: {
      containers: [
        {
          name: 'worker'
          image: '${server}/${prefix}-worker:${buildId}'
          resources: { cpu: json('4.0'), memory: '8Gi' }
          env: concat([ { name: 'RUN_MODE', value: 'worker' }, serviceKey ], map(items(heavySettings), one => { name: one.key, value: one.value }))
        }
      ]
    }
  }
}

resource migration 'Microsoft.App/jobs@2024-03-01' = {
  name: '${prefix}-migrate'
  location: location
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${deployIdentityId}': {} } }
  properties: {
    environmentId: environmentOfWorkers.id
    configuration: {
      triggerType: 'Manual'
      replicaTimeout: 3600
      replicaRetryLimit: 0
      registries: [ { server: server, identity: deployIdentityId } ]
      manualTriggerConfig: { parallelism: 1, replicaCompletionCount: 1 }
    }
    template: {
      containers: [
        {
          name: 'migrate'
          image: '${server}/${prefix}-orchestrator:${buildId}'
          resources: { cpu: json('0.5'), memory: '1Gi' }
          env: concat([ { name: 'RUN_MODE', value: 'migrate' } ], map(items(migrationSettings), one => { name: one.key, value: one.value }))
        }
      ]
    }
  }
}

// For modules/heavysite.bicep, where heavy work runs on an App Service instead.
output heavySettings object = heavySettings
