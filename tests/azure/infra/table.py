"""What `infra/` must be, in one table: the tests compare it with the parsed Bicep, people read it."""

from core.handlers_catalog import HEAVY_QUEUE, LIGHT_QUEUE

JOBS_QUEUE = "orchestrator-jobs"
QUEUES = {
    JOBS_QUEUE: {"lockDuration": "PT1M", "maxDeliveryCount": 1000, "defaultMessageTimeToLive": "P7D"},
    LIGHT_QUEUE: {"lockDuration": "PT1M", "maxDeliveryCount": 20, "defaultMessageTimeToLive": "P7D"},
    HEAVY_QUEUE: {"lockDuration": "PT5M", "maxDeliveryCount": 20, "defaultMessageTimeToLive": "P14D"},
}
EVERY_QUEUE = {
    "deadLetteringOnMessageExpiration": True,
    "requiresDuplicateDetection": False,
    "requiresSession": False,
    "enablePartitioning": False,
}

ROLES = {
    # Built-in role to its id: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
    "acrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "busSender": "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39",
    "busReceiver": "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0",
    "blobReader": "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
    "blobContributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "blobDelegator": "db58b8e5-c6ad-4a2a-8342-4190687cbf4a",
    "secretsUser": "4633458b-17de-408a-b874-0445c86b69e6",
}
METRICS_PUBLISHER = "3913510d-42f4-4e42-8a64-420c390055eb"
SECRETS_OFFICER = "b86a8fe4-44ce-4948-aee5-eccb2c155cd7"
FORBIDDEN_ROLES = {
    "Owner": "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",
    "Contributor": "b24988ac-6180-42a0-ab88-20f7382dd24c",
    "User Access Administrator": "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9",
    "Storage Blob Data Owner": "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
    "Azure Service Bus Data Owner": "090c5cfd-751d-490a-894a-3ce6f1109419",
    "Storage Account Contributor": "17d1049b-9a84-46fb-8f53-869881c3d3ab",
    "AcrPush": "8311e382-0749-4cb8-b61a-304f252e45ec",
}

GRANTS = {
    # who -> scope -> roles
    "orchestrator": {
        "queue orchestrator-jobs": {"busSender", "busReceiver"},
        "queue functionapp-tasks": {"busSender", "busReceiver"},
        "queue container-tasks": {"busSender", "busReceiver"},
        "container bronze": {"blobContributor"},
        "container silver": {"blobContributor"},
        "account bronze": {"blobDelegator"},
        "secret api-keys": {"secretsUser"},
        "secret upload-key": {"secretsUser"},
        "secret secrets-key": {"secretsUser"},
        "registry": {"acrPull"},
    },
    "worker": {
        "queue functionapp-tasks": {"busReceiver"},
        "queue container-tasks": {"busReceiver"},
        "container bronze": {"blobReader"},
        "container silver": {"blobContributor"},
        "container external": {"blobContributor"},
        "account bronze": {"blobDelegator"},
        "account silver": {"blobDelegator"},
        "secret worker-service-key": {"secretsUser"},
        "secret scale-key": {"secretsUser"},
        "registry": {"acrPull"},
    },
    "serving": {
        "container silver": {"blobReader"},
        "container external": {"blobReader"},
        "account silver": {"blobDelegator"},
        "account external": {"blobDelegator"},
        "secret api-keys": {"secretsUser"},
        "registry": {"acrPull"},
    },
    "gateway": {"secret gateway-service-key": {"secretsUser"}},
    "deploy": {"registry": {"acrPull"}},
}

RESOURCES = {
    # Specification §16.1, and what it lacks: what it is for -> (template, symbol, type)
    "container registry": ("registry", "registry", "Microsoft.ContainerRegistry/registries"),
    "web app of the orchestrator": ("sites", "orchestrator", "Microsoft.Web/sites"),
    "web app of serving": ("sites", "serving", "Microsoft.Web/sites"),
    "light workers": ("workers", "light", "Microsoft.App/containerApps"),
    "heavy workers": ("workers", "heavy", "Microsoft.App/jobs"),
    "web app of heavy workers": ("heavysite", "worker", "Microsoft.Web/sites"),
    "autoscale of heavy workers": ("heavysite", "scaling", "Microsoft.Insights/autoscalesettings"),
    "migration": ("workers", "migration", "Microsoft.App/jobs"),
    "gateway": ("gateway", "gateway", "Microsoft.Web/sites"),
    "database": ("database", "server", "Microsoft.DBforPostgreSQL/flexibleServers"),
    "allow-listed extensions": ("database", "allowed", "Microsoft.DBforPostgreSQL/flexibleServers/configurations"),
    "queues": ("messaging", "queue", "Microsoft.ServiceBus/namespaces/queues"),
    "identity of the orchestrator": (
        "identities",
        "orchestrator",
        "Microsoft.ManagedIdentity/userAssignedIdentities",
    ),
    "storage of every zone": ("storage", "account", "Microsoft.Storage/storageAccounts"),
    "containers": ("storage", "container", "Microsoft.Storage/storageAccounts/blobServices/containers"),
    "secrets": ("vault", "vault", "Microsoft.KeyVault/vaults"),
    "telemetry": ("monitoring", "insights", "Microsoft.Insights/components"),
    "alert on dead letters": ("alerts", "deadLetters", "Microsoft.Insights/metricAlerts"),
    "private endpoints": ("network", "endpoint", "Microsoft.Network/privateEndpoints"),
}
LOGGED = {"registry", "messaging", "storage", "database", "vault", "sites", "heavysite", "gateway"}
"""Templates whose resources send their logs to the workspace."""

GIVEN_BY = {
    # Settings that something else than the template gives a process.
    "BUILD_ID": "the image",
    "IDENTITY_ENDPOINT": "Azure",
    "IDENTITY_HEADER": "Azure",
    "WORKER_SERVICE_KEY": "a secret of the container app",
}
DEFAULTS_ARE_RIGHT = {
    # Settings that Azure needs no value for.
    "POSTGRES_PASSWORD": "identities have none",
    "POSTGRES_LISTEN_HOST": "no pooler",
    "POSTGRES_LISTEN_PORT": "no pooler",
    "ORCHESTRATOR_HEARTBEAT_SECONDS": "tuned together",
    "ORCHESTRATOR_THRESHOLD_SECONDS": "tuned together",
    "LEASE_SECONDS": "tuned together",
    "WEBHOOK_ALLOW_LOOPBACK": "never in production",
    "SOURCE_ALLOW_LOOPBACK": "never in production",
    "ALLOW_REBUILD": "never in production",
    "BLOB_ROOT": "each zone has a storage account",
    "BLOB_CONNECTION_STRING": "identities need none",
    "BLOB_URL": "for peers",
    "BLOB_CA_FILE": "for peers",
    "BLOB_SIGNATURE_SECONDS": "",
    "IDENTITY_IMDS_URL": "of virtual machines",
    "IDENTITY_PATIENCE_SECONDS": "",
    "UPLOAD_MAX_BYTES": "",
    "SOURCE_MAX_BYTES": "",
    "SERVICE_BUS_CONNECTION_STRING": "identities need none",
    "SERVICE_BUS_CUSTOM_ENDPOINT": "for peers",
    "SERVICE_BUS_CA_FILE": "for peers",
    "SERVICE_BUS_JOBS_QUEUE": "",
    "SERVICE_BUS_MAX_UNCLAIMED": "",
    "ADF_PIPELINE": "",
    "ADF_ENDPOINT": "other clouds have another",
    "WORKER_ID": "one of its own at every start",
    "WORKER_HEARTBEAT_SECONDS": "",
    "WORKER_TASK_MEMORY_BYTES": "",
    "WORKER_JOURNAL_FILE": "for tests",
    "WORKER_SLOTS_INLINE": "",
    "WORKER_CREDIT": "",
    "WORKER_EXIT_WHEN_IDLE_SECONDS": "light workers stay",
    "DAG_OFFER_URLS": "instances of an App Service have no addresses of their own",
    "GATEWAY_HOST": "Azure ignores it",
    "GATEWAY_PORT": "Azure ignores it",
    "GATEWAY_WORKER_URLS": "workers have no door",
    "API_KEYS_FILE": "the gateway takes tokens alone",
}
