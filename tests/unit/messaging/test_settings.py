"""Which queue a process uses: one way to it, chosen by name, and no other tried when that fails."""

from typing import Any

import pytest
from pydantic import ValidationError

from messaging.settings import QueueSettings

DATABASE = {"postgres_host": "h", "postgres_db": "d", "postgres_user": "u"}
IDENTITY = {"use_managed_identity": True, "identity_endpoint": "http://127.0.0.1:1", "identity_header": "h"}
STRING = "Endpoint=sb://x;SharedAccessKeyName=n;SharedAccessKey=s3cret"
NAMESPACE = "x.servicebus.windows.net"


def settings(**values: Any) -> QueueSettings:
    return QueueSettings.model_validate(DATABASE | values)


def test_without_a_namespace_the_queue_is_the_database() -> None:
    assert not settings().uses_service_bus


@pytest.mark.parametrize(
    "values", [{"service_bus_connection_string": STRING}, IDENTITY | {"service_bus_fqdn": NAMESPACE}]
)
def test_each_way_to_a_namespace_is_enough(values: dict[str, Any]) -> None:
    found = settings(**values)
    assert found.uses_service_bus
    assert "s3cret" not in str(found.redacted()) + repr(found)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"service_bus_fqdn": NAMESPACE}, "needs USE_MANAGED_IDENTITY"),
        ({"service_bus_fqdn": NAMESPACE, "service_bus_connection_string": STRING}, "exclude each other"),
        (IDENTITY | {"service_bus_connection_string": STRING}, "exclude each other"),
        ({"service_bus_custom_endpoint": "sb://localhost:5671"}, "needs SERVICE_BUS_FQDN"),
        (IDENTITY | {"service_bus_fqdn": "sb://x/"}, "String should match pattern"),
    ],
)
def test_half_a_way_or_two_ways_stop_the_start(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**values)
    told_all = "; ".join(problem["msg"] for problem in refused.value.errors())
    assert told in told_all
    assert "s3cret" not in told_all
