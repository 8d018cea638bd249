"""The infrastructure is what one table says, and its settings are those that the processes read."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from function.settings import GatewaySettings
from orchestrator.scaling import DIMENSION, METRIC
from orchestrator.settings import OrchestratorSettings
from repositories import roles
from repositories.monitor import NAMESPACE
from repositories.settings import DatabaseSettings, ProcessSettings
from serving.settings import ServingSettings
from tests.azure.infra import table
from tests.azure.infra.bicep import INFRA, Template, load
from worker.settings import WorkerSettings

ROOT = INFRA.parent
PROCESSES: dict[str, tuple[type[ProcessSettings], str, str]] = {
    "orchestrator": (OrchestratorSettings, "sites", "orchestratorSettings"),
    "serving": (ServingSettings, "sites", "servingSettings"),
    "light worker": (WorkerSettings, "workers", "lightSettings"),
    "heavy worker": (WorkerSettings, "workers", "heavySettings"),
    "migration": (DatabaseSettings, "workers", "migrationSettings"),
    "gateway": (GatewaySettings, "gateway", "gatewaySettings"),
}


@pytest.fixture(scope="module")
def templates() -> dict[str, Template]:
    return load()


def test_every_module_is_used_with_every_parameter_it_needs(templates: dict[str, Template]) -> None:
    used = templates["main"].modules()
    assert {Path(one["detail"]["path"]).stem for one in used.values()} == templates.keys() - {"main"}
    for one in used.values():
        template = templates[Path(one["detail"]["path"]).stem]
        config = one["config"]
        given = (config.get("config") or config)["params"].keys()
        assert given == template.parameters().keys(), template.name
        for name in template.parameters():
            assert template.text.count(name) > 1, f"{template.name} does not use {name}"


def test_every_resource_of_the_specification_is_there(templates: dict[str, Template]) -> None:
    for purpose, (name, symbol, kind) in table.RESOURCES.items():
        resource = templates[name].resource(symbol)
        assert (resource.type, resource.existing) == (kind, False), purpose
    for name in table.LOGGED:
        kinds = {one.type for one in templates[name].resources()}
        assert "Microsoft.Insights/diagnosticSettings" in kinds, name


def test_queues_have_the_settings_of_the_table_and_no_duplicate_detection(templates: dict[str, Template]) -> None:
    messaging = templates["messaging"]
    queues = {one["name"]: {k: v for k, v in one.items() if k != "name"} for one in messaging.variable("queues")}
    assert queues == table.QUEUES
    properties = messaging.resource("queue").config["properties"]
    assert {name: properties[name] for name in table.EVERY_QUEUE} == table.EVERY_QUEUE
    assert messaging.resource("namespace").config["properties"]["disableLocalAuth"] is True


def granted(roles_: Template) -> dict[str, dict[str, set[str]]]:
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in roles_.variable("queueGrants"):
        found[one["who"]][f"queue {one['queue']}"].add(one["role"])
    for one in roles_.variable("containerGrants"):
        found[one["who"]][f"container {one['zone']}"].add(one["role"])
    for one in roles_.variable("delegationGrants"):
        found[one["who"]][f"account {one['zone']}"].add("blobDelegator")
    for one in roles_.variable("secretGrants"):
        found[one["who"]][f"secret {one['secret']}"].add("secretsUser")
    for who in roles_.variable("pullers"):
        found[who]["registry"].add("acrPull")
    return {who: dict(scopes) for who, scopes in found.items()}


def test_each_identity_has_the_roles_of_the_table_on_the_smallest_scope(templates: dict[str, Template]) -> None:
    template = templates["roles"]
    assert template.variable("ids") == table.ROLES
    assert granted(template) == table.GRANTS
    condition = template.resource("fetched").config["properties"]["condition"]
    assert "StringLike" in str(condition)
    assert "fetched/*" in str(condition)


def test_no_role_is_an_owner_and_every_id_is_known(templates: dict[str, Template]) -> None:
    texts = "".join(one.text for one in templates.values())
    for name, role_id in table.FORBIDDEN_ROLES.items():
        assert role_id not in texts, name
    assignments = [
        (one.name, resource)
        for one in templates.values()
        for resource in one.resources()
        if resource.type == "Microsoft.Authorization/roleAssignments"
    ]
    assert {name for name, _ in assignments} == {"roles", "vault", "gateway", "heavysite"}
    for name, resource in assignments:
        assert "scope" in resource.config, f"{name}: {resource.symbol} would hold for the whole resource group"


@pytest.mark.parametrize("process", PROCESSES)
def test_settings_of_a_process_are_those_of_its_class(templates: dict[str, Template], process: str) -> None:
    kind, name, variable = PROCESSES[process]
    given: Mapping[str, Any] = templates[name].variable(variable)
    known = {field.upper(): field_info for field, field_info in kind.model_fields.items()}
    assert given.keys() <= known.keys(), "unknown settings; see docs/configuration.md"
    if process == "migration":
        return
    # A number that is tuned has a default that holds everywhere; a place, a name or a secret has none.
    places = {setting for setting, info in known.items() if info.is_required() or info.default in (None, "")}
    missing = places - given.keys() - table.GIVEN_BY.keys() - table.DEFAULTS_ARE_RIGHT.keys()
    assert not missing, (
        f"set {sorted(missing)} in infra/modules/{name}.bicep or name them in tests/azure/infra/table.py"
    )
    required = {setting for setting, info in known.items() if info.is_required()}
    assert required <= given.keys() | table.GIVEN_BY.keys()


def test_the_table_of_settings_names_none_that_is_gone() -> None:
    known = {field.upper() for kind, _, _ in PROCESSES.values() for field in kind.model_fields}
    assert table.GIVEN_BY.keys() <= known
    assert table.DEFAULTS_ARE_RIGHT.keys() <= known


def test_each_process_has_its_own_database_role(templates: dict[str, Template]) -> None:
    users = {
        process: templates[name].variable(variable)["POSTGRES_USER"]
        for process, (_, name, variable) in PROCESSES.items()
    }
    assert users == {
        "orchestrator": roles.ORCHESTRATOR,
        "serving": roles.SERVING,
        "light worker": roles.WORKER,
        "heavy worker": roles.WORKER,
        "migration": roles.DEPLOY,
        "gateway": roles.GATEWAY,
    }
    assert {one.lower() for one in templates["database"].variable("extensions")} == set(roles.EXTENSIONS)


def test_apps_stay_on_and_have_time_to_drain(templates: dict[str, Template]) -> None:
    for name, symbol in (("sites", "orchestrator"), ("sites", "serving"), ("heavysite", "worker")):
        site = templates[name].resource(symbol).config["properties"]["siteConfig"]
        assert (site["alwaysOn"], site["healthCheckPath"], site["ftpsState"]) == (True, "/livez", "Disabled")
        assert templates[name].variable("platformSettings")["WEBSITES_CONTAINER_STOP_TIME_LIMIT"] == "120"


def test_an_app_service_scales_on_the_number_that_orchestrators_write(templates: dict[str, Template]) -> None:
    site, sites, main = templates["heavysite"], templates["sites"], templates["main"]
    trigger = site.variable("trigger")
    (queue,) = trigger["dimensions"]
    assert (trigger["metricName"], trigger["metricNamespace"]) == (METRIC, NAMESPACE)
    assert "metricResourceUri: plan.id" in site.text
    assert (queue["DimensionName"], queue["Values"]) == (DIMENSION, [table.HEAVY_QUEUE])
    (profile,) = site.resource("scaling").config["properties"]["profiles"]
    triggers = [site.value(rule["metricTrigger"]) for rule in profile["rules"]]
    assert [(one["operator"], one["threshold"], one["dividePerInstance"]) for one in triggers] == [
        ("GreaterThan", 1, True),
        # Not per instance: nobody is taken away while a lease lives.
        ("LessThan", 1, False),
    ]
    assert profile["rules"][1]["scaleAction"]["type"] == "ExactCount"
    # The orchestrator writes about that very plan, and may.
    assert sites.variable("orchestratorSettings")["SCALE_METRICS_URL"] == "scaleMetricsUrl"
    assert "resourceId('Microsoft.Web/serverfarms', '${prefix}-worker-plan')}/metrics" in main.text
    assert site.resource("plan").config["name"] == "${prefix}-worker-plan"
    assert site.variable("publisher") == table.METRICS_PUBLISHER
    assert site.resource("publishing").config["scope"] == "plan"
    assert {"WORKER_EXIT_WHEN_IDLE_SECONDS", "WORKER_SERVICE_KEY"} == site.variable("ownSettings").keys() - {"RUN_MODE"}


def test_workers_scale_on_tasks_and_not_on_the_length_of_a_queue(templates: dict[str, Template]) -> None:
    text = templates["workers"].text
    assert text.count("type: 'metrics-api'") == 2
    assert text.count("valueLocation: 'tasks'") == 2
    for queue in (table.LIGHT_QUEUE, table.HEAVY_QUEUE):
        assert f"/api/v1/scale/{queue}'" in text
    assert "azure-servicebus" not in text


def test_every_alert_looks_for_a_message_that_the_code_logs(templates: dict[str, Template]) -> None:
    folders = ("core", "edge", "function", "messaging", "orchestrator", "repositories", "services", "serving", "worker")
    code = "".join(path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py"))
    alerts = templates["alerts"].variable("messageAlerts")
    assert {"leases-expire", "tasks-wait", "webhooks-fail", "tokens-fail"} <= {one["name"] for one in alerts}
    for alert in alerts:
        for message in alert["messages"]:
            assert f'"{message}"' in code or f'f"{message}' in code, f"{alert['name']}: nobody logs {message!r}"


def test_every_alert_names_a_section_of_the_runbook(templates: dict[str, Template]) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    sections = {line.lstrip("# ") for line in page.splitlines() if line.startswith("#")}
    texts = [str(one["says"]) for one in templates["alerts"].variable("messageAlerts")]
    for text in texts:
        assert text.split('docs/operations.md, "')[1].rstrip('".') in sections, text


def test_secrets_are_references_and_stand_in_no_template(templates: dict[str, Template]) -> None:
    for process, (kind, name, variable) in PROCESSES.items():
        given = templates[name].variable(variable)
        secret = {field.upper() for field, info in kind.model_fields.items() if "SecretStr" in str(info.annotation)}
        for setting in secret & given.keys():
            assert str(given[setting]).startswith("@Microsoft.KeyVault("), f"{process}: {setting}"
