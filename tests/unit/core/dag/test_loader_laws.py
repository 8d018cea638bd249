import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.dag.problems import DefinitionError
from core.dag.yaml_source import read_yaml, write_yaml
from tests.unit.core.dag.laws import LAWS

SHIPPED = yaml.safe_load((Path(__file__).parents[4] / "workflows" / "raster_ingest.yaml").read_text())

WORDS = st.sampled_from(
    [
        "start",
        "end",
        "task",
        "validate",
        "create_cog",
        "echo",
        "{{ inputs.title }}",
        "{{ nodes.end.output }}",
        "{{",
        "{%",
    ]
)
KEYS = st.sampled_from(
    ["type", "next", "depends_on", "all_of", "params", "retry", "handler", "nodes", "inputs", "default", "items", "x"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | WORDS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of everything inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with something else at a path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def refusal(text: str) -> DefinitionError | None:
    """Load a text and return why it was refused, None when it loads and survives its JSON form."""
    try:
        workflow = load_workflow(text, "any.yaml")
    except DefinitionError as error:
        return error
    assert Workflow.from_json(workflow.to_json()).definition_hash == workflow.definition_hash
    return None


@settings(LAWS, max_examples=max(LAWS.max_examples // 4, 1))
@given(st.data())
def test_whatever_stands_in_a_file_it_loads_or_is_refused_with_its_line(data: st.DataObject) -> None:
    value: Any = SHIPPED
    for _ in range(data.draw(st.integers(1, 3))):
        value = replaced(value, data.draw(st.sampled_from(places(value))), data.draw(VALUES))
    text = json.dumps(value, indent=1)
    error = refusal(text)
    if error is not None:
        assert 1 <= error.line <= text.count("\n") + 1
        assert str(error).startswith("any.yaml:")


@LAWS
@given(st.text())
def test_any_text_loads_or_is_refused(text: str) -> None:
    error = refusal(text)
    assert error is not None
    assert error.file == "any.yaml"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@LAWS
@given(st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=4))
def test_any_value_that_is_written_as_yaml_reads_as_the_same_value(value: dict[str, Any]) -> None:
    assert read_yaml(write_yaml(value)).value == value
