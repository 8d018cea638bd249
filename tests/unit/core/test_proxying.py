"""The proxy's allow-list: what leads somewhere, and that nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import NotFound
from core.proxying import ALLOWED, proxied_path

REACHED = [
    ("orchestrator", "GET", "api/v1/jobs", "/api/v1/jobs"),
    ("orchestrator", "GET", "api/v1/jobs/ab c/nodes", "/api/v1/jobs/ab%20c/nodes"),
    ("orchestrator", "POST", "api/v1/jobs/x/cancel", "/api/v1/jobs/x/cancel"),
    ("orchestrator", "POST", "api/v1/commands/cancel", "/api/v1/commands/cancel"),
    ("orchestrator", "PATCH", "api/v1/platforms/ddh", "/api/v1/platforms/ddh"),
    ("orchestrator", "PUT", "api/v1/settings/pauses/queue:x", "/api/v1/settings/pauses/queue%3Ax"),
    ("orchestrator", "GET", "health", "/health"),
    ("worker", "GET", "livez", "/livez"),
    ("serving", "GET", "readyz", "/readyz"),
]
UNREACHED = [
    ("orchestrator", "POST", "api/v1/bootstrap/rebuild"),
    ("orchestrator", "GET", "api/v1/bootstrap/status"),
    ("orchestrator", "POST", "api/v1/callbacks/claims"),
    ("orchestrator", "POST", "api/v1/submit"),
    ("orchestrator", "POST", f"api/v1/assets/{'a' * 32}/versions/0/approve"),
    ("orchestrator", "DELETE", f"api/v1/assets/{'a' * 32}"),
    ("orchestrator", "PUT", "uploads/token"),
    ("orchestrator", "DELETE", "api/v1/jobs/x"),
    ("orchestrator", "POST", "api/v1/platforms/ddh"),
    ("orchestrator", "HEAD", "api/v1/jobs"),
    ("orchestrator", "get", "api/v1/jobs"),
    ("orchestrator", "GET", "api/v1/jobsx"),
    ("orchestrator", "GET", "api/v1"),
    ("orchestrator", "GET", ""),
    ("orchestrator", "GET", "/api/v1/jobs"),
    ("orchestrator", "GET", "api/v1/jobs/"),
    ("orchestrator", "GET", "api//v1/jobs"),
    ("orchestrator", "GET", "api/v1/jobs/../bootstrap/rebuild"),
    ("orchestrator", "GET", "api/v1/jobs/./x"),
    ("orchestrator", "POST", "api/v1/jobs/..\\bootstrap"),
    ("orchestrator", "GET", "api/v1/jobs/%2e%2e/bootstrap/status"),
    ("orchestrator", "GET", "api/v1/jobs?x=1"),
    ("orchestrator", "GET", "api/v1/jobs#x"),
    ("orchestrator", "GET", "api/v1/jobs;x"),
    ("orchestrator", "GET", "api/v1/jobs/\r\nHost: evil"),
    ("orchestrator", "GET", "api/v1/jobs/" + "x" * 2000),
    ("worker", "GET", "api/v1/jobs"),
    ("worker", "POST", "livez"),
    ("database", "GET", "livez"),
    ("http://evil.example", "GET", "livez"),
]


@pytest.mark.parametrize(("target", "method", "path", "called"), REACHED)
def test_what_the_list_names_is_reached(target: str, method: str, path: str, called: str) -> None:
    assert proxied_path(target, method, path) == called


@pytest.mark.parametrize(("target", "method", "path"), UNREACHED)
def test_nothing_else_is_reached(target: str, method: str, path: str) -> None:
    with pytest.raises(NotFound):
        proxied_path(target, method, path)


@given(st.sampled_from(sorted(ALLOWED)), st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]), st.text())
def test_no_text_leads_out_of_its_prefix(target: str, method: str, rest: str) -> None:
    for door in ALLOWED[target]:
        try:
            called = proxied_path(target, method, f"{door.prefix}/{rest}")
        except NotFound:
            continue
        assert any(called.startswith(f"/{one.prefix}/") and one.method == method for one in ALLOWED[target])
        assert ".." not in called.split("/")
        assert called.isascii()
