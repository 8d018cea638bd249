"""Random workflows whose end is known beforehand: what each task does is written in its params.

Workflows of the `certain` kind have budgets that no fault uses up, so every fault-ridden history must end as the
reference model says. The others have small budgets, poison and hanging tasks, and need only end.
"""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from core.dag.catalogue import WorkflowCatalogue, load_folder

Json = dict[str, Any]
RULES = ("all_of", "any_of", "all_done")
QUEUES = ("functionapp-tasks", "container-tasks")
PLENTY = {"max_retries": 1000, "max_losses": 1000}


def definition(name: str, chance: Random, *, certain: bool) -> Json:
    """Return a random workflow in the language that authors write."""
    nodes: dict[str, Json] = {"start": {"type": "start"}}
    for number in range(chance.randint(1, 6)):
        nodes[f"n{number}"] = {
            **_task(chance, certain=certain),
            "depends_on": _join(chance, list(nodes)),
            "best_effort": chance.random() < 0.2,
        }
    nodes["end"] = {"type": "end", "depends_on": _join(chance, list(nodes))}
    return {
        "workflow_id": name,
        "version": 1,
        "on_failure": "drain" if certain else chance.choice(["drain", "cancel"]),
        "nodes": nodes,
    }


def _join(chance: Random, earlier: Sequence[str]) -> Json:
    return {chance.choice(RULES): chance.sample(earlier, min(len(earlier), chance.randint(1, 3)))}


def _task(chance: Random, *, certain: bool) -> Json:
    ends = ["good", "good", "good", "bad"] if certain else ["good", "good", "bad", "poison"]
    params = {
        "end": chance.choice(ends),
        "seconds": chance.choice([1.0, 10.0, 30.0, 60.0]),
        "effect": chance.random() < 0.7,
        "transient": chance.choice([0.0, 0.0, 0.3]),
        "hangs": chance.choice([0.0, 0.0, 0.1]),
    }
    retry = PLENTY if certain else {"max_retries": chance.randint(0, 2), "max_losses": chance.randint(0, 2)}
    return {
        "handler": "echo",
        "queue": chance.choice(QUEUES),
        "params": params,
        "timeout_seconds": 90,
        "retry": {**retry, "backoff": "fixed", "initial_delay_seconds": 2},
    }


def catalogue_of(definitions: Mapping[str, Json]) -> WorkflowCatalogue:
    """Load definitions as files are loaded.

    Raises:
        ValueError: One of them is not a workflow.
    """
    catalogue = load_folder({f"{name}.yaml": json.dumps(text) for name, text in definitions.items()})
    if catalogue.broken:
        raise ValueError(f"broken workflows: {catalogue.broken}")
    return catalogue
