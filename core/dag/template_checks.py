"""What the language refuses of Jinja2's expressions when a file loads, although Jinja2 itself would take it."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from jinja2 import nodes

from core.dag.filters import FILTERS, TESTS
from core.wording import did_you_mean

MAX_NESTING = 50
"""Levels of an expression: Jinja2 reads some 80 brackets in each other before the stack is full, Python 200."""


def refusal(root: nodes.Expr) -> str | None:
    """Return what is wrong with an expression, to be read behind its text; None when nothing is."""
    left: list[tuple[nodes.Node, int]] = [(root, 1)]
    while left:
        node, level = left.pop()
        problem = f"is nested deeper than {MAX_NESTING} levels" if level > MAX_NESTING else _problem_of(node)
        if problem is not None:
            return problem
        left += [(child, level + 1) for child in node.iter_child_nodes()]
    return None


def _problem_of(node: nodes.Node) -> str | None:
    match node:
        case nodes.Call():
            return "calls something; only filters and tests are allowed"
        case nodes.Const(value=float() as value) if not math.isfinite(value):
            return "has a number that is too large"
        case nodes.Filter(name=str() as name) if name in FILTERS:
            return _misused(name, node)
        case nodes.Filter(name=str() as name):
            return _unknown("filter", name, FILTERS)
        case nodes.Test(name=name) if name not in TESTS:
            return _unknown("test", name, TESTS)
        case _:
            return None


def _unknown(kind: str, name: str, known: Collection[str]) -> str:
    words = ", ".join(sorted(filter(str.isidentifier, known)))
    return f"is not a template: No {kind} named {name!r}; there are {words}{did_you_mean(name, known)}"


def _misused(name: str, node: nodes.Filter) -> str | None:
    """Return what is wrong with the arguments of a filter; how many there are and what they are called."""
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        return f"spreads arguments over the filter {name}"
    values = [None] * (1 + len(node.args))
    named = dict.fromkeys(str(keyword.key) for keyword in node.kwargs)
    try:
        _signature(name).bind(*values, **named)
    except TypeError:
        return f"gives the filter {name} arguments that it does not take: {_usage(name)}"
    return None


def _usage(name: str) -> str:
    """Return how a filter is written, with the arguments that it may be given."""
    _, *rest = _signature(name).parameters.values()
    words = [one.name if one.default is inspect.Parameter.empty else f"[{one.name}]" for one in rest]
    return f"{name}({', '.join(words)})" if words else f"{name} has none"


@cache
def _signature(name: str) -> inspect.Signature:
    functions: Mapping[str, Callable[..., Any]] = FILTERS
    return inspect.signature(functions[name])
