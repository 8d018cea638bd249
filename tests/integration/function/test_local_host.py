"""The local Functions host, over real HTTP, with an app that has a bit of everything."""

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import azure.functions as func
import pytest

from function.local_host import HostKeys, LocalHost, index_functions, route_prefix
from function.routing import RouteRefused
from tests.support.serving_http import serve

Answer = tuple[int, str]
KEYS = HostKeys(function="function-key", admin="admin-key")


def sample_app() -> func.FunctionApp:
    """Return an app with routes of every form."""
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    blueprint = func.Blueprint()

    @blueprint.route(route="things/{id}", methods=["GET", "PUT"])
    def thing(req: func.HttpRequest) -> func.HttpResponse:
        seen = {"method": req.method, "id": req.route_params["id"], "q": req.params.get("q")}
        return func.HttpResponse(json.dumps(seen), mimetype="application/json")

    @blueprint.route(route="things/{id:int}", methods=["GET"])
    async def number(req: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse(f"number {req.route_params['id']}")

    @blueprint.route(route="things/latest", methods=["GET"])
    async def latest(req: func.HttpRequest) -> str:
        return "latest"

    @blueprint.route(route="echo", methods=["POST"])
    async def echo(req: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse(req.get_body(), status_code=201, headers={"X-Seen": req.headers["x-sent"]})

    @blueprint.route(route="thread", methods=["GET"])
    def thread(req: func.HttpRequest) -> str:
        return threading.current_thread().name

    @blueprint.route(route="context", methods=["GET"])
    async def named(req: func.HttpRequest, context: func.Context) -> str:
        return str(context.function_name)

    @blueprint.route(route="broken", methods=["GET"])
    async def broken(req: func.HttpRequest) -> str:
        raise RuntimeError("a secret detail")

    @blueprint.route(route="locked", methods=["GET"], auth_level=func.AuthLevel.FUNCTION)
    async def locked(req: func.HttpRequest) -> str:
        return "in"

    @blueprint.route(route="master", methods=["GET"], auth_level=func.AuthLevel.ADMIN)
    async def master(req: func.HttpRequest) -> str:
        return "in"

    app.register_functions(blueprint)
    return app


@pytest.fixture
async def call() -> AsyncIterator[Any]:
    """Return a caller of the sample app, with the route prefix of the host's default."""
    async with serve(LocalHost(sample_app(), {}, KEYS)) as base, aiohttp.ClientSession() as session:

        async def send(method: str, path: str, **more: Any) -> Answer:
            async with session.request(method, base + path, **more) as answer:
                return answer.status, await answer.text()

        yield send


async def test_parameters_query_and_method_reach_the_function(call: Any) -> None:
    status, text = await call("GET", "/api/things/a%20b?q=1")
    assert (status, json.loads(text)) == (200, {"method": "GET", "id": "a b", "q": "1"})


async def test_the_most_exact_route_answers(call: Any) -> None:
    assert await call("GET", "/api/things/7") == (200, "number 7")
    assert await call("GET", "/api/things/latest") == (200, "latest")


async def test_a_less_exact_route_answers_methods_that_the_exact_one_does_not_have(call: Any) -> None:
    status, text = await call("PUT", "/api/things/7")
    assert (status, json.loads(text)["id"]) == (200, "7")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/things/7"),
        ("DELETE", "/api/echo"),
        ("GET", "/api/echo"),
        ("HEAD", "/api/things/7"),
        ("OPTIONS", "/api/things/7"),
        ("GET", "/things/7"),
        ("GET", "/api"),
        ("GET", "/"),
        ("GET", "/admin/host/status"),
    ],
)
async def test_a_wrong_method_or_path_is_404_and_never_405(call: Any, method: str, path: str) -> None:
    assert (await call(method, path))[0] == 404


async def test_body_headers_and_status_travel_unchanged(call: Any) -> None:
    assert await call("POST", "/api/echo", data=b"\x00\xffbytes".hex(), headers={"X-Sent": "1"}) == (
        201,
        b"\x00\xffbytes".hex(),
    )


async def test_a_synchronous_function_runs_beside_the_event_loop(call: Any) -> None:
    status, name = await call("GET", "/api/thread")
    assert status == 200
    assert name != threading.main_thread().name


async def test_a_function_may_ask_for_its_context(call: Any) -> None:
    assert await call("GET", "/api/context") == (200, "named")


async def test_a_function_that_raises_answers_500_without_a_word(call: Any) -> None:
    assert await call("GET", "/api/broken") == (500, "")


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("locked", None, 401),
        ("locked", "wrong", 401),
        ("locked", "function-key", 200),
        ("locked", "admin-key", 200),
        ("master", None, 401),
        ("master", "function-key", 401),
        ("master", "admin-key", 200),
    ],
)
async def test_auth_levels_take_the_hosts_keys(call: Any, path: str, key: str | None, status: int) -> None:
    headers = {"x-functions-key": key} if key else {}
    assert (await call("GET", f"/api/{path}", headers=headers))[0] == status
    assert (await call("GET", f"/api/{path}?code={key or ''}"))[0] == status


async def test_without_configured_keys_nobody_passes_a_level() -> None:
    async with serve(LocalHost(sample_app(), {})) as base, aiohttp.ClientSession() as session:
        for headers in ({}, {"x-functions-key": ""}, {"x-functions-key": "None"}):
            async with session.get(f"{base}/api/locked", headers=headers) as answer:
                assert answer.status == 401


def test_the_prefix_comes_from_host_json() -> None:
    assert route_prefix({}) == "api"
    assert route_prefix({"extensions": {"http": {"routePrefix": ""}}}) == ""


def test_two_functions_for_one_route_and_method_are_refused() -> None:
    app = func.FunctionApp()
    for name in ("one", "two"):

        async def answer(req: func.HttpRequest) -> str:
            return "x"

        app.function_name(name)(app.route(route="Same" if name == "one" else "same", methods=["GET"])(answer))
    with pytest.raises(RouteRefused, match="both serve GET"):
        index_functions(app, "")


def test_a_reserved_route_stops_the_start() -> None:
    app = func.FunctionApp()

    @app.route(route="admin/health", methods=["GET"])
    async def health(req: func.HttpRequest) -> str:
        return "x"

    with pytest.raises(RouteRefused):
        LocalHost(app, {})


def test_a_function_without_an_http_trigger_stops_the_start() -> None:
    app = func.FunctionApp()

    @app.timer_trigger(schedule="0 0 * * * *", arg_name="timer")
    def tick(timer: func.TimerRequest) -> None:
        return None

    with pytest.raises(RouteRefused, match="no HTTP trigger"):
        LocalHost(app, {})
