"""Conditions in an evaluation: `when` of any node, and the choice of a conditional."""

from typing import Any

from core.dag.condition_syntax import ConditionFailed, Operand
from core.dag.nodes import ConditionalNode
from core.dag.run import Run
from core.dag.templates import Program, TemplateFailed
from core.dag.values import Ask, value_of
from core.errors import ErrorDetail
from core.statuses import NodeStatus

OPERAND_BYTES = 1 << 20
"""Larger values are not compared."""


def is_bypassed(run: Run, node_id: str) -> bool:
    """Return whether `when` says that a node has nothing to do. Raises as `Condition.holds` does, and `Needed`."""
    condition = run.workflow.when_conditions.get(node_id)
    return condition is not None and not condition.holds(lambda operand: _operand(run, node_id, operand))


def go_on(run: Run, node_id: str, node: ConditionalNode) -> None:
    """Let a READY conditional choose; its edges follow from its output."""
    chooser = run.workflow.choosers[node_id]
    try:
        output = chooser.choose(
            lambda operand: _operand(run, node_id, operand),
            lambda program: _value(run, f"nodes.{node_id}.condition_field", node.condition_field, program),
        )
    except (ConditionFailed, TemplateFailed) as error:
        fail(run, node_id, error.detail)
    else:
        run.move(node_id, NodeStatus.COMPLETED, data={"taken": output["taken"]}, output=output)


def fail(run: Run, node_id: str, error: ErrorDetail) -> None:
    """End a node whose condition has no answer; the same would happen again."""
    run.fail_node(node_id, error.model_copy(update={"node_id": node_id}))


def _operand(run: Run, node_id: str, operand: Operand) -> Any:
    return _value(run, f"nodes.{node_id}: {operand.text}", operand.text, operand.expression)


def _value(run: Run, path: str, template: Any, program: Program) -> Any:
    answer = value_of(run, Ask(path, template, program, value_bytes=OPERAND_BYTES))
    if answer.ref is not None and answer.value is None:
        message = f"{path} has {answer.ref.size_bytes} bytes, more than {OPERAND_BYTES}"
        raise ConditionFailed(message, field=path.partition(":")[0])
    return answer.value
