"""Random workflows whose end is known beforehand: what each task does is written in its params, the rest in a plan.

Workflows of the `certain` kind have budgets that no fault uses up, so every fault-ridden history must end as the
reference model says. The others have small budgets, poison and hanging tasks, and need only end.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.simulation.model import predict
from core.dag.catalogue import WorkflowCatalogue, load_folder

Json = dict[str, Any]
RULES = ("all_of", "any_of", "all_done")
QUEUES = ("functionapp-tasks", "container-tasks")
PLENTY = {"max_retries": 1000, "max_losses": 1000}
INPUTS = {"yes": {"type": "boolean", "default": True}, "no": {"type": "boolean", "default": False}}
"""What conditions are about."""
CONDITIONS = ("{{ inputs.yes }}", "{{ inputs.no }}")
GOOD_MOSTLY = ("good", "good", "good", "bad")
CERTAIN = 3
LOOSE = 2
MAX_ITEMS = 7
SHARED = {"key": "global:shared", "limit": 2}
"""Slots that attempts of all workflows take from each other."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Definitions by workflow id; `plans` says of each node whether it succeeds in the end."""

    definitions: Mapping[str, Json]
    plans: Mapping[str, Mapping[str, bool]]
    certain: frozenset[str]
    """Workflows whose end the reference model knows."""

    @classmethod
    def draw(cls, chance: Random) -> "Workload":
        """Draw some certain workflows, of which later ones may run earlier ones, and some loose ones."""
        definitions: dict[str, Json] = {}
        plans: dict[str, dict[str, bool]] = {}
        for name in [f"certain{number}" for number in range(CERTAIN)]:
            author = _Author(chance, plans_of_children(definitions, plans), certain=True)
            definitions[name], plans[name] = author.write(name), author.plan
        certain = frozenset(definitions)
        for name in [f"loose{number}" for number in range(LOOSE)]:
            author = _Author(chance, plans_of_children(definitions, plans), certain=False)
            definitions[name], plans[name] = author.write(name), author.plan
        return cls(definitions, plans, certain)

    def catalogue(self) -> WorkflowCatalogue:
        """Load the definitions as files are loaded.

        Raises:
            ValueError: One of them is not a workflow.
        """
        texts = {f"{name}.yaml": json.dumps(definition) for name, definition in self.definitions.items()}
        catalogue = load_folder(texts)
        if catalogue.broken:
            raise ValueError(f"broken workflows: {catalogue.broken}")
        return catalogue


def plans_of_children(definitions: Mapping[str, Json], plans: Mapping[str, Mapping[str, bool]]) -> dict[str, bool]:
    """Return of each workflow that a later one may run whether its jobs complete."""
    return {name: predict(one, plans[name]).job == "COMPLETED" for name, one in definitions.items()}


class _Author:
    """Writes one workflow in the language of authors."""

    def __init__(self, chance: Random, children: Mapping[str, bool], *, certain: bool) -> None:
        self._chance = chance
        self._children = children
        self._certain = certain
        self._items: Json = {}
        self.plan: dict[str, bool] = {}

    def write(self, name: str) -> Json:
        """Return a random workflow."""
        chance = self._chance
        nodes: dict[str, Json] = {"start": {"type": "start"}}
        names = [f"n{number}" for number in range(chance.randint(1, 7))]
        for number, node_id in enumerate(names):
            later = [*names[number + 1 :], "end"]
            node = self._node(node_id, later)
            node["depends_on"] = self._join(list(nodes))
            if chance.random() < 0.2:
                node["when"] = chance.choice(CONDITIONS)
            if node.get("type") not in {"conditional", "fan_out"}:
                node["best_effort"] = chance.random() < 0.2
            nodes[node_id] = node
            if node.get("type") == "fan_out":
                nodes[f"{node_id}in"] = {"type": "fan_in", "aggregation": "collect", "depends_on": [node_id]}
        nodes["end"] = {"type": "end", "depends_on": self._join(list(nodes))}
        definition: Json = {"workflow_id": name, "version": 1, "inputs": {**INPUTS, **self._items}, "nodes": nodes}
        definition["on_failure"] = "drain" if self._certain else chance.choice(["drain", "cancel"])
        if chance.random() < 0.25:
            definition["concurrency"] = {"key": "whole", "limit": chance.randint(1, 2)}
        return definition

    def _node(self, node_id: str, later: Sequence[str]) -> Json:
        chance = self._chance
        kind = chance.random()
        if kind < 0.15:
            chosen = {"on_true": [chance.choice(later)], "on_false": [chance.choice(later)]}
            return {"type": "conditional", "condition": chance.choice(CONDITIONS), **chosen}
        if kind < 0.25:
            self.plan[node_id] = chance.random() < 0.7
            return {"type": "gate"}
        if kind < 0.35 and self._children:
            child = chance.choice(sorted(self._children))
            self.plan[node_id] = self._children[child]
            return {"type": "workflow", "workflow_id": child, "version": 1}
        return self._fan_out(node_id) if kind < 0.55 else self._task(node_id)

    def _fan_out(self, node_id: str) -> Json:
        """Return a fan-out over an input of its own, which says how each item ends."""
        chance = self._chance
        items = [self._params(chance.choice(GOOD_MOSTLY)) for _ in range(chance.randint(0, MAX_ITEMS))]
        bad = sum(item["end"] == "bad" for item in items)
        tolerated = chance.choice([0, bad, bad, len(items)])
        self._items[f"items_{node_id}"] = {"type": "array", "default": items}
        self.plan[node_id] = bad <= tolerated
        names = ("end", "seconds", "effect", "transient", "hangs")
        params: Json = {name: f"{{{{ item.{name} }}}}" for name in names}
        return {
            "type": "fan_out",
            "source": f"{{{{ inputs.items_{node_id} }}}}",
            "max_concurrency": chance.randint(1, 4),
            "batch_size": chance.choice([1, 1, 1, 2, 3]),
            "tolerate": {"count": tolerated},
            "task": self._work({**params, "output": {"at": "{{ index }}"}}),
        }

    def _join(self, earlier: Sequence[str]) -> Json:
        chance = self._chance
        return {chance.choice(RULES): chance.sample(earlier, min(len(earlier), chance.randint(1, 3)))}

    def _task(self, node_id: str) -> Json:
        chance = self._chance
        end = chance.choice(GOOD_MOSTLY if self._certain else ["good", "good", "bad", "poison"])
        self.plan[node_id] = end == "good"
        return self._work(self._params(end))

    def _params(self, end: str) -> Json:
        chance = self._chance
        return {
            "end": end,
            "seconds": chance.choice([1.0, 10.0, 30.0, 60.0]),
            "effect": chance.random() < 0.7,
            "transient": chance.choice([0.0, 0.0, 0.3]),
            "hangs": chance.choice([0.0, 0.0, 0.1]),
        }

    def _work(self, params: Json) -> Json:
        chance = self._chance
        retry = PLENTY if self._certain else {"max_retries": chance.randint(0, 2), "max_losses": chance.randint(0, 2)}
        work = {
            "handler": "echo",
            "queue": chance.choice(QUEUES),
            "params": params,
            "timeout_seconds": 90,
            "retry": {**retry, "backoff": "fixed", "initial_delay_seconds": 2},
        }
        return {**work, "concurrency": SHARED} if chance.random() < 0.2 else work
