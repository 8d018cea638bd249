import json
from typing import Any

import pytest
from pydantic import BaseModel

from core.dag.check_params import wrong_params
from core.dag.loader import load_workflow
from core.dag.problems import DefinitionError
from core.dag.rendering import params_problem
from core.handler_models import Params
from core.handlers_catalog import CATALOG, LIGHT_QUEUE, HandlerSpec, RunMode
from tests.unit.core.dag.harness import World, chain, workflow_of


class Inner(Params):
    crs: str | None = None
    size: int


class Other(Params):
    size: str


class Given(Params):
    seconds: float = 1.0
    inner: Inner | None = None
    names: tuple[str, ...] = ()
    either: Inner | Other | None = None
    level: int | str = 0


SPEC = HandlerSpec("given", LIGHT_QUEUE, RunMode.INLINE, Given, BaseModel)
FILE = """\
workflow_id: demo
version: 1
nodes:
  start: {type: start, next: a}
  a:
    handler: sleep
    params:
      seconds: abc
    next: each
  each:
    type: fan_out
    source: "{{ nodes.a.output.slept_seconds }}"
    task: {handler: sleep, params: {seconds: -1}}
    next: end
  end: {type: end}
"""


def places(**params: Any) -> list[str]:
    return [".".join(map(str, path)) for path, _ in wrong_params(SPEC, params)]


@pytest.mark.parametrize(
    ("params", "wrong"),
    [
        ({"seconds": "abc"}, ["seconds"]),
        ({"seconds": 1, "names": []}, []),
        ({"seconds": "{{ inputs.x }}"}, []),
        ({"names": ["a", "{{ inputs.x }}", 5]}, ["names.2"]),
        ({"names": "{{ inputs.x }}"}, []),
        ({"inner": {"size": "{{ inputs.x }}", "crs": 5}}, ["inner.crs"]),
        ({"inner": {"size": 1, "colour": "{{ inputs.x }}"}}, ["inner.colour"]),
        ({"inner": {"crs": "{{ inputs.x }}"}}, ["inner.size"]),
        ({"either": {"size": "{{ inputs.x }}"}}, []),
        ({"either": {"size": "{{ inputs.x }}", "crs": 5}}, []),
        ({"level": "{{ inputs.x }}"}, []),
        ({"unknown": 1}, []),
    ],
)
def test_a_constant_that_no_run_could_mend_is_wrong(params: dict[str, Any], wrong: list[str]) -> None:
    assert places(**params) == wrong


def test_a_constant_that_fits_none_of_several_types_is_wrong() -> None:
    assert places(level=[1]) == ["level.int", "level.str"]


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e400", "NaN"])
def test_a_number_that_no_float_holds_is_wrong_and_not_infinity(number: str) -> None:
    problem = params_problem(SPEC, f'{{"seconds": {number}}}'.encode())
    assert problem is not None
    assert (problem.code, problem.field) == ("PARAMETER_INVALID", "params.seconds")
    assert "expected a number" in problem.message


def test_constant_params_are_checked_when_the_file_loads() -> None:
    with pytest.raises(DefinitionError) as caught:
        load_workflow(FILE, "demo.yaml")
    assert [(one.line, one.node, one.message) for one in caught.value.problems] == [
        (8, "a", 'params.seconds of sleep: expected a number, got "abc"'),
        (13, "each", "params.seconds of sleep: expected at least 0.0, got -1"),
    ]


def test_params_that_fail_when_a_node_runs_are_told_with_the_value_that_was_found() -> None:
    nodes = chain("a", handler="sleep", params={"seconds": "{{ inputs.x }}"})
    for given, found in (
        (-1, "expected at least 0.0, got -1"),
        ("abc", 'expected a number, got "abc"'),
    ):
        world = World(workflow_of(nodes, inputs={"x": {}}), {"x": given})
        error = world.job.error
        assert error is not None
        assert (error["code"], error["field"], error["value"]) == ("PARAMETER_INVALID", "params.seconds", given)
        assert error["message"].endswith(f"params.seconds of sleep: {found}")


def test_a_list_is_shown_in_json_and_cut_and_a_url_without_its_query() -> None:
    spec = CATALOG["sleep"]
    wrong = params_problem(spec, json.dumps({"seconds": ["a"] * 900}).encode())
    assert wrong is not None
    assert wrong.message.startswith('params.seconds of sleep: expected a number, got ["a","a",')
    assert len(json.dumps(wrong.model_dump(mode="json"))) < 800
    secret = params_problem(spec, json.dumps({"seconds": "https://x.example/a.tif?sig=SECRET"}).encode())
    assert secret is not None
    assert "SECRET" not in str(secret.model_dump())
    assert secret.message.endswith('got "https://x.example/a.tif?…"')
    url = "https://x.example/a.tif?sig=SECRET"
    for inside in ([url], {"a": [{"b": url}]}, {url: 1}, f"see {url}"):
        hidden = params_problem(spec, json.dumps({"seconds": inside}).encode())
        assert hidden is not None
        assert "SECRET" not in str(hidden.model_dump())
        assert "https://x.example/a.tif?…" in hidden.message
    missing = params_problem(spec, b"{}")
    assert missing is not None
    assert (missing.message, missing.value) == ("params.seconds of sleep: is missing", None)
