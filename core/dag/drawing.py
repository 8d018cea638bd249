"""Pictures of a workflow: Mermaid text, and SVG in layers from top to bottom."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import assert_never

from core.dag.definition import Workflow
from core.dag.graph import rule_of
from core.dag.layout import layout
from core.dag.nodes import (
    ConditionalNode,
    EndNode,
    FanInNode,
    FanOutNode,
    GateNode,
    JoinRule,
    Node,
    StartNode,
    TaskNode,
    WorkflowNode,
)

BOX_WIDTH, BOX_HEIGHT = 220, 46
COLUMN, ROW = 250, 110
MARGIN = 20
MAX_LABEL = 32
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" \
font-family="sans-serif" font-size="12" role="img" aria-label="{name}">
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Arrow:
    """One edge and what is written on it."""

    source: str
    target: str
    label: str = ""


def arrows(workflow: Workflow) -> Iterator[Arrow]:
    """Yield every edge; those of conditionals say when they are taken."""
    for target in workflow.graph.order:
        for source in workflow.graph.incoming[target]:
            yield Arrow(source, target, _label(workflow.nodes[source], target))


def _label(source: Node, target: str) -> str:
    if not isinstance(source, ConditionalNode):
        return ""
    ways = ["true"] * (target in source.on_true) + ["false"] * (target in source.on_false)
    ways += [branch.condition or "otherwise" for branch in source.branches if target in branch.next]
    return ", ".join(ways)


def _lines(workflow: Workflow, node_id: str) -> list[str]:
    """Return what stands in a box: the id, and what the node does unless the id says it."""
    node = workflow.nodes[node_id]
    rule = rule_of(node)
    words = [_deed(node), *([rule.value] if rule is not JoinRule.ALL_OF else [])]
    return [node_id, ", ".join(words)] if words != [node_id] else [node_id]


def _deed(node: Node) -> str:
    match node:
        case TaskNode():
            return node.handler
        case FanOutNode():
            return f"each: {node.task.handler}"
        case FanInNode():
            return node.aggregation.value
        case ConditionalNode():
            return node.condition or node.condition_field or "branches"
        case WorkflowNode():
            return f"workflow {node.workflow_id}"
        case StartNode() | EndNode() | GateNode():
            return node.type
        case _ as never:
            assert_never(never)


def mermaid(workflow: Workflow) -> str:
    """Return a Mermaid flowchart."""
    names = {node_id: f"n{number}" for number, node_id in enumerate(workflow.graph.order)}
    lines = ["flowchart TD"]
    for node_id, name in names.items():
        before, after = _brackets(workflow.nodes[node_id])
        text = "<br>".join(_quoted(line) for line in _lines(workflow, node_id))
        lines.append(f'    {name}{before}"{text}"{after}')
    for arrow in arrows(workflow):
        label = f'|"{_quoted(arrow.label)}"|' if arrow.label else ""
        lines.append(f"    {names[arrow.source]} -->{label} {names[arrow.target]}")
    return "\n".join(lines) + "\n"


def _brackets(node: Node) -> tuple[str, str]:
    match node:
        case StartNode() | EndNode():
            return "([", "])"
        case ConditionalNode():
            return "{", "}"
        case FanOutNode() | FanInNode():
            return "[[", "]]"
        case GateNode():
            return "{{", "}}"
        case WorkflowNode():
            return "[/", "/]"
        case TaskNode():
            return "[", "]"
        case _ as never:
            assert_never(never)


def _quoted(text: str) -> str:
    return escape(text, quote=False).replace("#", "#35;").replace('"', "#quot;").replace("\n", " ")


def svg(workflow: Workflow) -> str:
    """Return an SVG document; each box is a group with the node's id and type, for styles and scripts."""
    plan = layout(workflow.graph)
    columns = max(map(len, plan.layers))
    width, height = columns * COLUMN + 2 * MARGIN, len(plan.layers) * ROW + 2 * MARGIN
    at = {
        spot: (MARGIN + COLUMN * (number + (columns - len(layer) + 1) / 2), MARGIN + ROW * (spot[0] + 0.5))
        for layer in plan.layers
        for number, spot in enumerate(layer)
    }
    parts = [_HEAD.format(width=width, height=height, name=escape(workflow.workflow_id))]
    for arrow in arrows(workflow):
        parts.append(_arrow(arrow, [at[spot] for spot in plan.routes[arrow.source, arrow.target]]))
    parts += [_box(workflow, node_id, where) for (_, node_id), where in at.items() if node_id in workflow.nodes]
    return "\n".join([*parts, "</svg>", ""])


def _arrow(arrow: Arrow, points: Sequence[Point]) -> str:
    """Return a line from below its source to above its target, bent through the points between."""
    points = [
        (points[0][0], points[0][1] + BOX_HEIGHT / 2),
        *points[1:-1],
        (points[-1][0], points[-1][1] - BOX_HEIGHT / 2),
    ]
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        middle = (y1 + y2) / 2
        path += f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
    line = f'<path class="edge" d="{path}" fill="none" stroke="#667" marker-end="url(#tip)"/>'
    if not arrow.label:
        return line
    (x1, y1), (x2, y2) = points[:2]
    return line + _text((x1 + x2) / 2, (y1 + y2) / 2, arrow.label, "#335")


def _box(workflow: Workflow, node_id: str, where: Point) -> str:
    node = workflow.nodes[node_id]
    x, y = where
    radius = {"start": BOX_HEIGHT / 2, "end": BOX_HEIGHT / 2, "conditional": 14}.get(node.type, 4)
    lines = _lines(workflow, node_id)
    top = y + 4 - 8 * (len(lines) - 1)
    texts = [_text(x, top + 17 * number, line, "#112" if number == 0 else "#556") for number, line in enumerate(lines)]
    return (
        f'<g class="node {node.type}" data-node="{escape(node_id)}"><title>{escape(": ".join(lines))}</title>'
        f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
        f' rx="{radius:g}" fill="#f6f7fb" stroke="#667"/>{"".join(texts)}</g>'
    )


def _text(x: float, y: float, text: str, colour: str) -> str:
    shown = text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{colour}">{escape(shown)}</text>'
