"""Route templates, matched as the Functions host matches them."""

import pytest

from function.routing import RouteRefused, compile_template


@pytest.mark.parametrize(
    ("route", "path", "values"),
    [
        ("api/x", "/api/x", {}),
        ("api/x", "/API/X/", {}),
        ("api/x", "/api/x/y", None),
        ("api/{id}", "/api/a%20b", {"id": "a b"}),
        ("api/{id}", "/api/a%2Fb", {"id": "a/b"}),
        ("api/{id}", "/api/", None),
        ("api/{id}", "/api/a/b", None),
        ("api/{id:int}", "/api/12", {"id": "12"}),
        ("api/{id:int}", "/api/-1", {"id": "-1"}),
        ("api/{id:int}", "/api/x", None),
        ("api/{id:int}", "/api/2147483648", None),
        ("api/{id:int}", "/api/１", None),
        ("api/{id:guid}", "/api/2f1c9a52-3d55-4f5e-9a1b-0c3a9d2e7f10", {"id": "2f1c9a52-3d55-4f5e-9a1b-0c3a9d2e7f10"}),
        ("api/{name?}", "/api", {}),
        ("api/{name?}", "/api/x", {"name": "x"}),
        ("api/{*rest}", "/api/a/b/c", {"rest": "a/b/c"}),
        ("api/{*rest}", "/api", {}),
        ("{id}", "/x", {"id": "x"}),
    ],
)
def test_a_template_matches_what_the_host_would_match(route: str, path: str, values: dict[str, str] | None) -> None:
    assert compile_template(route, "").match(path) == values


def test_the_prefix_stands_before_the_functions_own_route() -> None:
    template = compile_template("x/{id}", "api")
    assert template.match("/api/x/1") == {"id": "1"}
    assert template.match("/x/1") is None


@pytest.mark.parametrize("route", ["admin", "admin/health", "Admin/x", "runtime/x", "/admin/x"])
def test_routes_that_belong_to_the_host_are_refused(route: str) -> None:
    for prefix in ("", "api"):
        with pytest.raises(RouteRefused, match="belongs to the host"):
            compile_template(route, prefix)


def test_a_whole_path_below_api_admin_is_allowed() -> None:
    assert compile_template("api/admin/health", "").match("/api/admin/health") == {}


@pytest.mark.parametrize("route", ["a/{id:long}", "a/{*rest}/b", "a/{id?}/b", "a/x{id}", "a/{id", "a/{}"])
def test_forms_that_are_not_understood_are_refused(route: str) -> None:
    with pytest.raises(RouteRefused):
        compile_template(route, "")


def test_more_exact_templates_come_first() -> None:
    routes = ["a/{*rest}", "a/{id}", "a/{id:int}", "a/latest"]
    ranked = sorted((compile_template(route, "") for route in routes), key=lambda template: template.rank)
    assert [template.text for template in ranked] == ["/a/latest", "/a/{id:int}", "/a/{id}", "/a/{*rest}"]
