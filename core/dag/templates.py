"""Templates of the workflow language: sandboxed, mapping lookup only, data is never rendered twice.

A text that is nothing but one `{{ … }}` is an expression and keeps its native type; in any other text each `{{ … }}`
is put in as text (JSON text for anything that is not a string). Statements, calls and attribute access do not exist:
`a.b` and `a["b"]` both look a key up in a mapping, so a key named `items` works. A value that is not there is an
error that names its path, except under `default(…)` and `is defined`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NoReturn

from jinja2 import TemplateError, Undefined, UndefinedError, nodes
from jinja2.environment import Template, TemplateExpression
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from core.dag.filters import FILTERS, TESTS, Missing
from core.dag.json_values import MAX_INTEGER_BITS, NotJson, as_stored, is_number_of_json
from core.dag.other_languages import instead_in_template
from core.dag.template_checks import refusal
from core.errors import ErrorDetail, GeodagError
from core.ids import canonical_json
from core.wording import a_kind, shorten, without_python

MAX_TEXT = 100_000
_GUARDS = frozenset({"default", "d", "defined", "undefined"})
_OF_NUMBERS = frozenset({"*", "**", "%"})
"""Operators that Python has for texts and lists too, with another meaning."""
_EVALUATION_ERRORS = (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError)


class TemplateFailed(GeodagError):
    """A template cannot be compiled or has no value; the same data would fail again."""

    code = "TEMPLATE_ERROR"

    @classmethod
    def of(cls, detail: ErrorDetail) -> "TemplateFailed":
        """Return a failure with a detail that was found elsewhere."""
        failed = cls(detail.message)
        failed.detail = detail
        return failed


class _Sandbox(SandboxedEnvironment):
    """Looks keys up in mappings and positions in lists; nothing else can be reached."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return _lookup(obj, argument)

    def call(self, _context: Any, _callee: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise SecurityError("templates cannot call anything")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        for one in (left, right):
            if isinstance(one, Undefined):
                bool(one)
        if operator in _OF_NUMBERS and not (_is_number(left) and _is_number(right)):
            raise TypeError(f"{operator} takes numbers, got {a_kind(left)} and {a_kind(right)}")
        if operator == "**" and isinstance(left, int) and left.bit_length() * abs(right) > MAX_INTEGER_BITS:
            raise ValueError(f"a power with the exponent {right} is too large")
        try:
            result = super().call_binop(context, operator, left, right)
        except TypeError as error:
            raise TypeError(f"{operator} does not take {a_kind(left)} and {a_kind(right)}") from error
        if _is_number(left) and not is_number_of_json(result):
            raise ValueError(f"the result of {operator} is no number that JSON has")
        return result


def _lookup(obj: Any, key: Any) -> Any:
    if isinstance(obj, Mapping) and isinstance(key, str):
        return obj[key] if key in obj else Missing(name=key)
    if isinstance(obj, list | tuple | str) and isinstance(key, int) and not isinstance(key, bool):
        return obj[key] if -len(obj) <= key < len(obj) else Missing(name=f"[{key}]")
    return Missing(name=str(key))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@lru_cache(maxsize=1)
def _sandbox() -> _Sandbox:
    # Not optimized: Jinja2 would write the value of a constant expression into its code, and NaN is no word of Python.
    sandbox = _Sandbox(undefined=Missing, autoescape=False, cache_size=0, optimized=False, keep_trailing_newline=True)
    sandbox.globals.clear()
    sandbox.filters = dict(FILTERS)
    sandbox.tests = dict(TESTS)
    return sandbox


@dataclass(frozen=True, slots=True)
class Lookup:
    """One static lookup such as `nodes.a.output.b`."""

    chain: tuple[str | int, ...]
    guarded: bool
    """True under `default(…)` or `is defined`, where it may lead nowhere."""
    keeps_null: bool = False
    """True under a `default(…)` that stands in for what is not there, and not for null."""

    def __str__(self) -> str:
        text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.chain)
        return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Expression:
    """One compiled `{{ … }}`."""

    source: str
    lookups: tuple[Lookup, ...]
    is_lookup: bool
    """True when it is one static lookup and nothing else: what that finds is data, and nothing in data is missing."""
    _run: Callable[[Mapping[str, Any]], Any]

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Return the native value; `TemplateFailed` when there is none."""
        try:
            value = self._run(scope)
        except UndefinedError as error:
            raise self._missing(scope, f"{error}") from error
        except _EVALUATION_ERRORS as error:
            raise TemplateFailed(f"{self.source} cannot be evaluated: {shorten(without_python(error))}") from error
        if isinstance(value, Undefined):
            raise self._missing(scope, value._undefined_message)
        if not self.is_lookup and isinstance(value, list | tuple | dict) and _holds_missing(value):
            raise self._missing(scope, "something in it is not there")
        return value

    def text(self, scope: Mapping[str, Any]) -> str:
        """Return the value as text, JSON of what is none; `TemplateFailed` when there is none, or it is not JSON."""
        value = self.evaluate(scope)
        if isinstance(value, str):
            return value
        try:
            value = as_stored(value, self.source)
        except NotJson as error:
            raise TemplateFailed(error.detail.message) from error
        return canonical_json(value)

    def _missing(self, scope: Mapping[str, Any], found: str) -> TemplateFailed:
        """Return the failure that names the first lookup which leads nowhere; `found` tells one with a computed key."""
        for lookup in self.lookups:
            if not lookup.guarded and not _leads_somewhere(lookup, scope):
                why = _node_status(lookup, scope)
                return TemplateFailed(f"{self.source} has no value: {lookup} is not there{why}", field=str(lookup))
        return TemplateFailed(f"{self.source} has no value: {shorten(found)}")


@dataclass(frozen=True, slots=True)
class Text:
    """Literal pieces and expressions, joined as text."""

    parts: tuple["str | Expression", ...]

    def evaluate(self, scope: Mapping[str, Any]) -> str:
        """Return the joined text."""
        return "".join(part if isinstance(part, str) else part.text(scope) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Constant:
    """A value without any template in it."""

    value: Any

    def evaluate(self, _scope: Mapping[str, Any]) -> Any:
        """Return the value."""
        return self.value


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with templates somewhere below."""

    items: tuple[tuple[str, "Program"], ...]

    def evaluate(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mapping with every value evaluated."""
        return {key: program.evaluate(scope) for key, program in self.items}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list with templates somewhere below."""

    items: tuple["Program", ...]

    def evaluate(self, scope: Mapping[str, Any]) -> list[Any]:
        """Return the list with every item evaluated."""
        return [program.evaluate(scope) for program in self.items]


Program = Constant | Expression | Text | MapOf | ListOf


def compile_value(value: Any) -> Program:
    """Compile every text in a JSON value; `TemplateFailed` for a template that cannot be compiled."""
    match value:
        case str():
            return compile_text(value)
        case dict():
            return _fold_map({key: compile_value(item) for key, item in value.items()})
        case list() | tuple():
            return _fold_list([compile_value(item) for item in value])
        case _:
            return Constant(value)


def is_constant(value: Any) -> bool:
    """Return whether a value has no template in it, readable or not."""
    try:
        return isinstance(compile_value(value), Constant)
    except TemplateFailed:
        return False


def _fold_map(programs: dict[str, Program]) -> Program:
    if all(isinstance(program, Constant) for program in programs.values()):
        return Constant({key: program.evaluate({}) for key, program in programs.items()})
    return MapOf(tuple(programs.items()))


def _fold_list(programs: list[Program]) -> Program:
    if all(isinstance(program, Constant) for program in programs):
        return Constant([program.evaluate({}) for program in programs])
    return ListOf(tuple(programs))


def compile_text(text: str) -> Program:
    """Compile one text: a constant, a lone expression, or text with expressions in it."""
    if not any(mark in text for mark in ("{{", "{%", "{#")):
        return Constant(text)
    if len(text) > MAX_TEXT:
        raise TemplateFailed(f"a template of {len(text)} characters is longer than {MAX_TEXT}")
    lone = _parse(text.strip())
    if len(lone) == 1 and not isinstance(lone[0], nodes.TemplateData):
        return _expression(lone[0], text.strip())
    return Text(tuple(_part(node, text) for node in _parse(text)))


def _parse(text: str) -> list[nodes.Expr]:
    try:
        tree = _sandbox().parse(text)
    except (TemplateError, RecursionError) as error:
        message = f"{shorten(text)} is not a template: {_told(error)}{instead_in_template(text, str(error))}"
        raise TemplateFailed(message, value=shorten(text)) from error
    outputs = [node for node in tree.body if isinstance(node, nodes.Output)]
    if len(outputs) < len(tree.body):
        raise TemplateFailed(f"{shorten(text)} contains a statement; only {{{{ … }}}} is allowed")
    return [child for output in outputs for child in output.nodes]


def _told(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _part(node: nodes.Expr, text: str) -> "str | Expression":
    return node.data if isinstance(node, nodes.TemplateData) else _expression(node, text)


def _expression(node: nodes.Expr, source: str) -> Expression:
    if problem := refusal(node):
        raise TemplateFailed(f"{shorten(source)} {problem}")
    chain = _chain(node)
    run = _compile(node, source) if chain is None else partial(_walk, chain)
    return Expression(shorten(source), tuple(_lookups(node)), chain is not None, run)


def _compile(node: nodes.Expr, source: str) -> TemplateExpression:
    try:
        body: list[nodes.Node] = [nodes.Assign(nodes.Name("result", "store"), _AsJson().visit(node), lineno=1)]
        tree = nodes.Template(body, lineno=1)
        tree.set_environment(_sandbox())
        template: Template = _sandbox().from_string(tree)
    except (TemplateError, RecursionError) as error:
        raise TemplateFailed(f"{shorten(source)} is not a template: {_told(error)}", value=shorten(source)) from error
    return TemplateExpression(template, undefined_to_none=False)


class _AsJson(NodeTransformer):
    """Makes `a ~ b` join JSON text, where Jinja2 would join `str`, a list of `(a, b)`, and numbers as stored."""

    def visit_Const(self, node: nodes.Const) -> nodes.Const:
        if isinstance(node.value, float) and math.isfinite(node.value):
            return nodes.Const(as_stored(node.value, "number"), lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.List:
        self.generic_visit(node)
        return nodes.List(node.items, lineno=node.lineno)


def _walk(chain: tuple[str | int, ...], scope: Mapping[str, Any]) -> Any:
    """Follow one static lookup without the template machinery, which costs ten times as much."""
    value: Any = scope
    for key in chain:
        value = _lookup(value, key)
    return value


def _holds_missing(value: Any) -> bool:
    match value:
        case dict():
            return any(_holds_missing(item) for item in value.values())
        case list() | tuple():
            return any(_holds_missing(item) for item in value)
        case _:
            return isinstance(value, Undefined)


def _lookups(node: nodes.Node, guard: nodes.Filter | nodes.Test | None = None) -> Iterator[Lookup]:
    """Yield every static lookup below `node`, longest first at its place."""
    chain = _chain(node)
    if chain is not None:
        yield Lookup(chain, guard is not None, isinstance(guard, nodes.Filter) and not _answers_null(guard))
        return
    around = node if isinstance(node, nodes.Filter | nodes.Test) and node.name in _GUARDS else None
    for child in node.iter_child_nodes():
        yield from _lookups(child, around if around is not None and child is around.node else None)


def _answers_null(default: nodes.Filter) -> bool:
    """Return whether a `default(…)` has its second argument."""
    return len(default.args) > 1 or any(one.key == "boolean" for one in default.kwargs)


def _chain(node: nodes.Node) -> tuple[str | int, ...] | None:
    match node:
        case nodes.Name():
            return (node.name,)
        case nodes.Getattr():
            head = _chain(node.node)
            return None if head is None else (*head, node.attr)
        case nodes.Getitem(arg=nodes.Const(value=str() | int() as key)):
            head = _chain(node.node)
            return None if head is None else (*head, key)
        case nodes.Getitem(arg=nodes.Neg(node=nodes.Const(value=int() as key))):
            head = _chain(node.node)
            return None if head is None else (*head, -key)
        case _:
            return None


def _leads_somewhere(lookup: Lookup, scope: Mapping[str, Any]) -> bool:
    return not isinstance(_walk(lookup.chain, scope), Undefined)


def _node_status(lookup: Lookup, scope: Mapping[str, Any]) -> str:
    """Say why a node has no output, when that is what is missing."""
    if lookup.chain[0] != "nodes" or len(lookup.chain) < 2:
        return ""
    node = scope.get("nodes", {}).get(lookup.chain[1])
    return "" if node is None or "output" in node else f" (node {lookup.chain[1]} is {node.get('status')})"


def lookups_of(program: Program) -> Iterator[tuple[Lookup, str]]:
    """Yield each static lookup of a program with the source it stands in."""
    match program:
        case Expression():
            yield from ((lookup, program.source) for lookup in program.lookups)
        case Text():
            for part in program.parts:
                if isinstance(part, Expression):
                    yield from lookups_of(part)
        case MapOf():
            for _, item in program.items:
                yield from lookups_of(item)
        case ListOf():
            for item in program.items:
                yield from lookups_of(item)
        case Constant():
            return


def render(program: Program, scope: Mapping[str, Any], path: str) -> Any:
    """Evaluate a program and make sure that the result can be stored; errors name `path`."""
    value = program.evaluate(scope)
    if isinstance(program, Constant):
        return value
    try:
        return as_stored(value, path)
    except NotJson as error:
        raise TemplateFailed(error.detail.message, field=error.detail.field) from error
