"""The values of templates in an evaluation: small ones are made here, others are asked for (`core.dag.rendering`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.dag.input_spec import InputSpec
from core.dag.rendering import LargeValue, Rendered, Rendering, Shape
from core.dag.run import Run
from core.dag.scope import scope_of
from core.dag.templates import Lookup, MapOf, Program, TemplateFailed, lookups_of, render
from core.ids import canonical_json
from core.payloads import LIMIT_BYTES, PayloadRef

Place = tuple[str, ...]


class Needed(Exception):
    """The value has to be made elsewhere; `settle` notes that the node waits for it and goes on with the others."""

    def __init__(self, rendering: Rendering) -> None:
        super().__init__(f"{rendering.path} is not made yet")
        self.rendering = rendering


@dataclass(frozen=True, slots=True)
class Ask:
    """A template whose value is wanted: what its author wrote, and the same compiled."""

    path: str
    template: Any
    program: Program
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What can be looked up beside inputs, nodes and job: an item, its index."""
    override: Mapping[str, Any] = field(default_factory=dict)
    """What stands in the place of parts of a mapping, as it is."""
    handler: str | None = None
    workflow_id: str | None = None
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    shape: Shape = Shape.WHOLE
    value_bytes: int = LIMIT_BYTES


def value_of(run: Run, ask: Ask) -> Rendered:
    """Return the value, large ones as references.

    Raises:
        TemplateFailed: it has no value, or what it reads is lost; the detail has the code.
        Needed: somebody has to read or to store something large first.
    """
    ask = _unless_overridden(ask)
    large = tuple(large_reads(run, ask.program))
    if not large:
        value = render(ask.program, {**scope_of(run), **ask.extra}, ask.path)
        if ask.override:
            value = {**value, **ask.override}
        if not exceeds(canonical_json(value)):
            return Rendered(value)
    return asked(run, ask, large)


def _unless_overridden(ask: Ask) -> Ask:
    template, program = without(ask.template, ask.program, ask.override)
    return replace(ask, template=template, program=program) if ask.override else ask


def without(template: Any, program: Program, override: Mapping[str, Any]) -> tuple[Any, Program]:
    """Leave out the parts that something is put over: one that has no value is edited just because of that."""
    if not override or not isinstance(program, MapOf):
        return template, program
    kept = {name: part for name, part in template.items() if name not in override}
    return kept, MapOf(tuple(item for item in program.items if item[0] not in override))


def exceeds(text: str) -> bool:
    """Return whether canonical JSON is above the limit for values in rows and messages."""
    return len(text) > LIMIT_BYTES or (len(text) * 4 > LIMIT_BYTES and len(text.encode()) > LIMIT_BYTES)


def asked(run: Run, ask: Ask, large: tuple[LargeValue, ...] = ()) -> Rendered:
    """Return the answer that the state has for this value, or raise as `value_of` does."""
    rendering = Rendering(
        job_id=run.job.job_id,
        path=ask.path,
        template=ask.template,
        scope=_seen(run, ask),
        large=large,
        override=dict(ask.override),
        handler=ask.handler,
        workflow_id=ask.workflow_id,
        inputs=dict(ask.inputs),
        shape=ask.shape,
        value_bytes=ask.value_bytes,
    )
    answer = run.state.rendered.get(rendering.key)
    if answer is None:
        raise Needed(rendering)
    if answer.error is not None:
        raise TemplateFailed.of(answer.error)
    return answer


def large_reads(run: Run, program: Program) -> Iterator[LargeValue]:
    """Yield the large values that a program may look into, each once."""
    found: dict[Place, PayloadRef] = {}
    if not run.job.input_refs and all(node.output_ref is None for node in run.nodes.values()):
        return
    for lookup, _ in lookups_of(program):
        found.update(_refs_behind(run, lookup))
    for place in sorted(found):
        yield LargeValue(at=place, ref=found[place])


def _refs_behind(run: Run, lookup: Lookup) -> Iterator[tuple[Place, PayloadRef]]:
    root, names = lookup.chain[0], lookup.chain[1:]
    if root == "inputs" and run.job.input_refs:
        for name, ref in run.job.input_refs.items():
            if not names or names[0] == name:
                yield ("inputs", name), PayloadRef.model_validate(ref)
    elif root == "nodes" and not (len(names) > 1 and names[1] == "status"):
        for node_id in (str(names[0]),) if names else run.nodes:
            node = run.nodes.get(node_id)
            if node is not None and node.output_ref is not None:
                yield ("nodes", node_id, "output"), PayloadRef.model_validate(node.output_ref)


def _seen(run: Run, ask: Ask) -> dict[str, Any]:
    """Return the part of the scope that the program looks into, without what is large."""
    scope = scope_of(run)
    seen: dict[str, Any] = dict(ask.extra)
    for lookup, _ in lookups_of(ask.program):
        root, names = str(lookup.chain[0]), lookup.chain[1:]
        if root == "job":
            seen["job"] = scope["job"]
        elif root in {"inputs", "nodes"}:
            part = seen.setdefault(root, {})
            for name in names[:1] or scope[root]:
                if name in scope[root]:
                    part[name] = _small(run, root, str(name), scope[root][name])
    return seen


def _small(run: Run, root: str, name: str, value: Any) -> Any:
    if root == "nodes" and run.nodes[name].output_ref is not None:
        return {"status": value["status"]}
    return value
