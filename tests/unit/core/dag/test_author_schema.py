import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema.protocols import Validator

from core.dag.author_schema import author_schema
from core.dag.yaml_source import read_yaml
from tests.unit.core.dag.test_load_checks import D19
from tests.unit.core.dag.test_loader import GOOD
from tests.unit.core.dag.test_spec_blocks import BLOCKS

ROOT = Path(__file__).parents[4]
SHIPPED = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "workflows").glob("*.yaml")}
TEXTS = SHIPPED | {name: block for name, (block, _) in BLOCKS.items()} | {"d19": D19, "good": GOOD}


@pytest.fixture(scope="module")
def schema() -> Validator:
    """Return a validator of the schema."""
    kind = jsonschema.validators.validator_for(author_schema())
    kind.check_schema(author_schema())
    return kind(author_schema())


@pytest.mark.parametrize("name", TEXTS)
def test_every_spelling_that_loads_fits_the_schema(schema: Validator, name: str) -> None:
    assert [error.message for error in schema.iter_errors(read_yaml(TEXTS[name]).value)] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("next: end\n", "nxet: end\n"),
        ("next: say", "next: [1]"),
        ("type: start", "type: begin"),
        ("version: 1", "version: one"),
        ("version: 1", "version: 1\npriority: urgent"),
        ("version: 1", "version: 1\ncolour: red"),
        ("workflow_id: demo", "workflow_id: a-b"),
        ("  say:", "  2say:"),
        ("    next: end\n", "    next: end\n    retry: {max_retries: -1}\n"),
        ("    next: end\n", "    next: end\n    depends_on: {all: [start]}\n"),
    ],
)
def test_a_mistake_does_not_fit(schema: Validator, old: str, new: str) -> None:
    assert old in GOOD
    assert list(schema.iter_errors(read_yaml(GOOD.replace(old, new, 1)).value))


@pytest.mark.parametrize("path", ["nodes/say/handler", "nodes/say/queue"])
def test_editors_are_offered_names(path: str) -> None:
    work: dict[str, Any] = author_schema()["$defs"]["Work"]["properties"]
    assert work[path.rsplit("/", 1)[1]]["examples"]


def test_what_the_catalogue_pins_is_no_word_of_authors() -> None:
    assert "definition_hash" not in json.dumps(author_schema())
