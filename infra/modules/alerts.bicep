// What wakes somebody. The queries look for the constant messages of the processes' JSON logs, and a test looks for each
// of them in the code, so none of these alerts goes dumb by a rewording.
param location string
param prefix string
param email string
param workspaceId string
param namespaceId string
param databaseId string

var logs = 'union isfuzzy=true (AppServiceConsoleLogs | project line = ResultDescription), (ContainerAppConsoleLogs_CL | project line = Log_s), (FunctionAppLogs | project line = Message)'

var messageAlerts = [
  {
    name: 'leases-expire'
    says: 'Workers die or hang: leases of tasks expired. docs/operations.md, "Workers disappear".'
    messages: [ 'leases expired' ]
    threshold: 5
    severity: 2
  }
  {
    name: 'tasks-wait'
    says: 'A task has waited for a worker for more than a quarter of an hour. docs/operations.md, "Nothing moves".'
    messages: [ 'tasks wait for workers' ]
    threshold: 0
    severity: 2
  }
  {
    name: 'dead-letters-stored'
    says: 'A message was set aside. `geodag dead-letters list` says why. docs/operations.md, "Dead letters".'
    messages: [ 'dead letter' ]
    threshold: 0
    severity: 2
  }
  {
    name: 'webhooks-fail'
    says: 'Webhooks are not sent. docs/operations.md, "Webhooks".'
    messages: [ 'webhooks not sent', 'webhook secret unreadable' ]
    threshold: 5
    severity: 3
  }
  {
    name: 'tokens-fail'
    says: 'Tokens of managed identities or signing keys cannot be had. docs/operations.md, "Identity".'
    messages: [ 'identity keys not fetched', 'the managed identity gives no token' ]
    threshold: 2
    severity: 1
  }
  {
    name: 'loop-stuck'
    says: 'An orchestrator does not finish its steps. docs/operations.md, "Nothing moves".'
    messages: [ 'heartbeat withheld: the loop is stuck', 'tick failed' ]
    threshold: 2
    severity: 1
  }
]

resource people 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: '${prefix}-people'
  location: 'global'
  properties: {
    groupShortName: 'geodag'
    enabled: true
    emailReceivers: [ { name: 'operators', emailAddress: email, useCommonAlertSchema: true } ]
  }
}

resource byMessage 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for alert in messageAlerts: {
  name: '${prefix}-${alert.name}'
  location: location
  properties: {
    displayName: alert.name
    description: alert.says
    severity: alert.severity
    enabled: true
    scopes: [ workspaceId ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      allOf: [
        {
          query: '${logs} | where line has_any (${join(map(alert.messages, one => '"${one}"'), ', ')})'
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: alert.threshold
          failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
        }
      ]
    }
    actions: { actionGroups: [ people.id ] }
  }
}]

resource deadLetters 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: '${prefix}-dead-letters'
  location: 'global'
  properties: {
    description: 'Messages lie in a dead-letter queue. docs/operations.md, "Dead letters".'
    severity: 2
    enabled: true
    scopes: [ namespaceId ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'dead'
          criterionType: 'StaticThresholdCriterion'
          metricNamespace: 'Microsoft.ServiceBus/namespaces'
          metricName: 'DeadletteredMessages'
          dimensions: [ { name: 'EntityName', operator: 'Include', values: [ '*' ] } ]
          operator: 'GreaterThan'
          threshold: 0
          timeAggregation: 'Maximum'
        }
      ]
    }
    actions: [ { actionGroupId: people.id } ]
  }
}

resource databaseFull 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: '${prefix}-database-full'
  location: 'global'
  properties: {
    description: 'The database has used four fifths of its disk. docs/operations.md, "Retention".'
    severity: 2
    enabled: true
    scopes: [ databaseId ]
    evaluationFrequency: 'PT15M'
    windowSize: 'PT1H'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'disk'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'storage_percent'
          operator: 'GreaterThan'
          threshold: 80
          timeAggregation: 'Average'
        }
      ]
    }
    actions: [ { actionGroupId: people.id } ]
  }
}
