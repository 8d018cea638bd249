from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from hypothesis import given

from core.dag.definition import Workflow
from core.dag.drawing import mermaid, svg
from core.dag.layout import Spot, layout
from tests.unit.core.dag.harness import task, workflow_of
from tests.unit.core.dag.laws import LAWS
from tests.unit.core.dag.worlds import workflows

NODES: dict[str, Any] = {
    "start": {"type": "start", "next": ["route"]},
    "route": {
        "type": "conditional",
        "condition_field": "{{ inputs.x }}",
        "branches": [{"condition": '== "<a>"', "next": ["each", "end"]}, {"default": True, "next": ["hold"]}],
    },
    "each": {"type": "fan_out", "source": "{{ inputs.x }}", "task": {"handler": "echo"}, "next": ["all"]},
    "all": {"type": "fan_in", "aggregation": "sum", "next": ["child"]},
    "child": {"type": "workflow", "workflow_id": "other"},
    "hold": {"type": "gate", "next": ["work"]},
    "work": task("child", join="any_of"),
    "end": {"type": "end", "depends_on": {"all_done": ["work"]}},
}
WORKFLOW = workflow_of(NODES)


def test_mermaid_shows_types_labels_and_joins() -> None:
    order = WORKFLOW.graph.order
    lines = mermaid(WORKFLOW).splitlines()
    name = {node_id: f"n{order.index(node_id)}" for node_id in order}
    assert lines[0] == "flowchart TD"
    boxes = {
        f'{name["start"]}(["start"])',
        f'{name["route"]}{{"route<br>{{{{ inputs.x }}}}"}}',
        f'{name["each"]}[["each<br>each: echo"]]',
        f'{name["all"]}[["all<br>sum"]]',
        f'{name["child"]}[/"child<br>workflow other"/]',
        f'{name["hold"]}{{{{"hold<br>gate"}}}}',
        f'{name["work"]}["work<br>echo, any_of"]',
        f'{name["end"]}(["end<br>end, all_done"])',
    }
    assert boxes <= {line.strip() for line in lines}
    arrow = f'{name["route"]} -->|"== #quot;&lt;a&gt;#quot;"| {name["each"]}'
    assert f"    {arrow}" in lines
    assert f'    {name["route"]} -->|"otherwise"| {name["hold"]}' in lines
    assert f"    {name['hold']} --> {name['work']}" in lines


def boxes_of(text: str) -> Iterator[tuple[str, float, float]]:
    """Yield the node, x and y of every box."""
    for group in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}g"):
        rect = group.find("{http://www.w3.org/2000/svg}rect")
        assert rect is not None
        yield group.attrib["data-node"], float(rect.attrib["x"]), float(rect.attrib["y"])


def test_svg_has_a_box_for_each_node_with_its_type_and_words() -> None:
    text = svg(WORKFLOW)
    assert {node_id for node_id, _, _ in boxes_of(text)} == NODES.keys()
    for words in ('class="node fan_out"', "== &quot;&lt;a&gt;&quot;", "otherwise", "work: echo, any_of"):
        assert words in text


@LAWS
@given(workflows())
def test_boxes_lie_below_their_sources_and_never_on_each_other(workflow: Workflow) -> None:
    at = {node_id: (x, y) for node_id, x, y in boxes_of(svg(workflow))}
    assert at.keys() == workflow.nodes.keys()
    assert len(set(at.values())) == len(at)
    for target, sources in workflow.graph.incoming.items():
        assert all(at[source][1] < at[target][1] for source in sources)


@LAWS
@given(workflows())
def test_every_edge_goes_through_each_layer_once_from_its_source_to_its_target(workflow: Workflow) -> None:
    plan = layout(workflow.graph)
    spots: set[Spot] = {spot for layer in plan.layers for spot in layer}
    for (source, target), route in plan.routes.items():
        assert (route[0][1], route[-1][1]) == (source, target)
        assert [layer for layer, _ in route] == list(range(route[0][0], route[-1][0] + 1))
        assert spots >= set(route)
