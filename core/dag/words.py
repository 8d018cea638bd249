"""Which words the language has at a place of a file: for suggestions when another one stands there."""

from collections.abc import Collection, Mapping, Set
from typing import Final, get_args

from core.dag.definition import Workflow
from core.dag.input_spec import InputSpec
from core.dag.nodes import Branch, Concurrency, Defaults, Definition, Join, Node, RetrySpec, Tolerate, Work

_OF_NODES: Final[Mapping[str, type[Definition]]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(Node)
}
_INSIDE: Final[Mapping[str, type[Definition]]] = {
    "branches": Branch,
    "concurrency": Concurrency,
    "defaults": Defaults,
    "depends_on": Join,
    "retry": RetrySpec,
    "task": Work,
    "tolerate": Tolerate,
}
_SPELLINGS: Final[Mapping[type[Definition], frozenset[str]]] = {RetrySpec: frozenset({"max_attempts"})}
_FROM_CATALOGUE: Final = frozenset({"definition_hash"})


def words_at(location: tuple[int | str, ...]) -> Set[str]:
    """Return the words that may stand where Pydantic found another; the last part of the location is that one."""
    model = _model_at(location[:-1])
    return (model.model_fields.keys() - _FROM_CATALOGUE) | _SPELLINGS.get(model, frozenset())


def words_of(location: tuple[int | str, ...]) -> Collection[str]:
    """Return the words of the mapping that should stand where Pydantic found something else, in their order."""
    known = words_at((*location, ""))
    model = _model_at(location)
    return [*(word for word in model.model_fields if word in known), *sorted(known - model.model_fields.keys())]


def _model_at(location: tuple[int | str, ...]) -> type[Definition]:
    match location:
        case ("inputs", *_):
            return InputSpec
        case ("nodes", _, str() as kind):
            return _OF_NODES.get(kind, Workflow)
        case (*_, str() as word) | (*_, str() as word, int()):
            return _INSIDE.get(word, Workflow)
        case _:
            return Workflow
