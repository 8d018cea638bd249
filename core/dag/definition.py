"""A workflow as its author wrote it, in canonical form. `core.dag.loader` makes it from YAML."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from core.dag.choices import Chooser, compile_conditional
from core.dag.conditions import Condition, parse_condition
from core.dag.graph import Graph, build_graph, rule_of
from core.dag.input_spec import InputSpec
from core.dag.nodes import (
    AnyNode,
    Concurrency,
    ConditionalNode,
    Defaults,
    Definition,
    FanOutNode,
    JoinRule,
    Node,
    PositiveSeconds,
    RetrySpec,
    TaskNode,
    Work,
    WorkflowNode,
)
from core.dag.retry import RetryPolicy, merge
from core.dag.templates import Program, compile_value
from core.ids import canonical_json, digest

PRIORITY_NAMES: Mapping[str, int] = {"interactive": 8, "routine": 5, "backfill": 1}
ID_PATTERN = r"^(?!.*__)[A-Za-z][A-Za-z0-9_]{0,47}$"


class Workflow(Definition):
    """One version of one workflow; immutable, named by the hash of its content."""

    workflow_id: str
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    name: str = ""
    description: str = ""
    current: bool = Field(default=False, description="The default version, although a higher one exists.")
    reversed_by: str | None = Field(default=None, description="The workflow that undoes this one.")
    priority: Annotated[int, Field(ge=0, le=10)] = 5
    deadline_seconds: PositiveSeconds | None = None
    on_failure: Literal["drain", "cancel"] = "drain"
    concurrency: Concurrency | None = Field(default=None, description="A slot that the job holds.")
    deduplicate: Literal["inputs"] | None = Field(default=None, description="Equal inputs are the same job.")
    inputs: dict[str, InputSpec] = Field(default={})
    outputs: dict[str, Any] = Field(default={})
    defaults: Defaults = Defaults()
    nodes: dict[str, AnyNode]

    @classmethod
    def from_json(cls, definition: Mapping[str, Any] | str) -> Self:
        """Read what `to_json` wrote; a definition of an older build reads the same."""
        text = definition if isinstance(definition, str) else canonical_json(definition)
        return cls.model_validate_json(text)

    def to_json(self) -> dict[str, Any]:
        """Return the canonical form.

        Fields at their default are left out, so that words which the language gains later do not change old hashes.
        """
        return self.model_dump(mode="json", exclude_defaults=True)

    @cached_property
    def definition_hash(self) -> str:
        """SHA-256 of the canonical JSON."""
        return digest(self.to_json())

    @cached_property
    def text(self) -> str:
        """The canonical form as JSON text."""
        return canonical_json(self.to_json())

    @cached_property
    def graph(self) -> Graph:
        """The shape, computed once."""
        return build_graph(self.nodes)

    @cached_property
    def spared(self) -> frozenset[str]:
        """What `on_failure: cancel` leaves alone: `all_done` joins and what follows them, however far those are."""
        joins = frozenset(key for key, node in self.nodes.items() if rule_of(node) is JoinRule.ALL_DONE)
        return joins | self.graph.descendants(joins)

    @cached_property
    def works(self) -> Mapping[str, Work]:
        """What workers are asked to do, by node: of a task the task itself, of a fan-out the task of its children."""
        found: dict[str, Work] = {}
        for key, node in self.nodes.items():
            match node:
                case TaskNode():
                    found[key] = node
                case FanOutNode():
                    found[key] = node.task
        return found

    @cached_property
    def params_programs(self) -> Mapping[str, Program]:
        """Compiled params by node with work."""
        return {key: compile_value(work.params) for key, work in self.works.items()}

    @cached_property
    def pins(self) -> frozenset[str]:
        """Hashes of the definitions that its nodes of type workflow run."""
        nodes = (node for node in self.nodes.values() if isinstance(node, WorkflowNode))
        return frozenset(node.definition_hash for node in nodes if node.definition_hash is not None)

    @cached_property
    def inputs_programs(self) -> Mapping[str, Program]:
        """Compiled inputs of child jobs, by node."""
        return {key: compile_value(node.inputs) for key, node in self.nodes.items() if isinstance(node, WorkflowNode)}

    def deadline_at(self, now: datetime) -> datetime | None:
        """Return until when a job has to be done that is created now."""
        return None if self.deadline_seconds is None else now + timedelta(seconds=self.deadline_seconds)

    @cached_property
    def slotted(self) -> frozenset[str]:
        """Nodes whose attempts hold slots."""
        return frozenset(key for key, work in self.works.items() if work.concurrency is not None)

    @property
    def uses_slots(self) -> bool:
        """Return whether the job or any of its attempts holds slots."""
        return self.concurrency is not None or bool(self.slotted)

    @cached_property
    def key_programs(self) -> Mapping[str, Program]:
        """Compiled keys of slots, by what their authors wrote."""
        found = [self.concurrency, *(work.concurrency for work in self.works.values())]
        return {one.key: compile_value(one.key) for one in found if one is not None}

    @cached_property
    def when_conditions(self) -> Mapping[str, Condition]:
        """Parsed `when` by node that has one."""
        said = {key: node.when for key, node in self.nodes.items() if node.when is not None}
        return {key: parse_condition(when, path=f"nodes.{key}.when") for key, when in said.items()}

    @cached_property
    def choosers(self) -> Mapping[str, Chooser]:
        """Compiled conditionals by node."""
        conditionals = {key: node for key, node in self.nodes.items() if isinstance(node, ConditionalNode)}
        return {key: compile_conditional(node, f"nodes.{key}") for key, node in conditionals.items()}

    @cached_property
    def source_programs(self) -> Mapping[str, Program]:
        """Compiled sources by fan-out."""
        return {key: compile_value(node.source) for key, node in self.nodes.items() if isinstance(node, FanOutNode)}

    @cached_property
    def outputs_program(self) -> Program:
        """Compiled outputs."""
        return compile_value(self.outputs)

    @cached_property
    def retry_policies(self) -> Mapping[str, RetryPolicy]:
        """Merged retry policy by node with work; a child job is not started again unless its node says so."""
        policies = {key: merge(work.retry, self.defaults.retry) for key, work in self.works.items()}
        for key, node in self.nodes.items():
            if isinstance(node, WorkflowNode):
                retries = (node.retry and node.retry.max_retries) or 0
                policies[key] = merge(node.retry, RetrySpec(max_retries=retries, max_losses=retries))
        return policies

    def node(self, node_id: str) -> Node:
        """Return one vertex."""
        return self.nodes[node_id]
