"""What a database already knows of a workflow version decides whether a file may still be run."""

from typing import Any

from core.dag.catalogue import WorkflowCatalogue
from core.dag.definition import Workflow
from core.dag.pinning import pin
from core.statuses import JobStatus
from repositories.database import AsyncPool
from services.definitions import Shelf
from services.work import pipelined
from tests.support.engine import Engine, HandWorker
from tests.unit.core.dag.harness import chain, workflow_of


def leaf(version: int = 1, **fields: Any) -> Workflow:
    return workflow_of(chain("a"), workflow_id="leaf", version=version, **fields)


def calling(workflow_id: str, child: str, **fields: Any) -> Workflow:
    nodes = {**chain("a"), "a": {"type": "workflow", "workflow_id": child, "next": ["end"]}}
    return workflow_of(nodes, workflow_id=workflow_id, **fields)


async def registered(pool: AsyncPool, *workflows: Workflow, may_redefine: bool = False) -> WorkflowCatalogue:
    pinned, troubles = pin({(one.workflow_id, one.version): one for one in workflows})
    assert not troubles
    shelf = Shelf(WorkflowCatalogue(pinned))
    async with pipelined(pool) as conn:
        await shelf.register(conn, may_redefine=may_redefine)
    return shelf.catalogue


async def test_a_version_with_other_content_is_taken_off_with_all_that_run_it(pool: AsyncPool) -> None:
    tree = calling("top", "mid"), calling("mid", "leaf"), leaf()
    assert (await registered(pool, *tree)).ids() == ("leaf", "mid", "top")
    assert (await registered(pool, *tree)).broken == ()
    changed = await registered(pool, *tree[:2], leaf(name="other"), workflow_of(chain("a"), workflow_id="alone"))
    assert changed.ids() == ("alone",)
    assert [one.file for one in changed.broken] == ["leaf version 1", "mid version 1", "top version 1"]
    assert "give the change a new version" in changed.broken[0].error
    assert changed.broken[2].error == "runs leaf version 1"


async def test_a_new_version_of_a_child_needs_no_new_version_of_its_parents(pool: AsyncPool) -> None:
    before = await registered(pool, calling("top", "leaf"), leaf())
    after = await registered(pool, calling("top", "leaf"), leaf(), leaf(2))
    assert after.broken == ()
    assert before.get("top").definition_hash != after.get("top").definition_hash
    assert after.get("top").pins == {after.get("leaf", 2).definition_hash}
    changed = await registered(pool, calling("top", "leaf", name="other"), leaf(), leaf(2))
    assert [one.file for one in changed.broken] == ["top version 1"]


async def test_in_development_a_version_may_get_other_content(pool: AsyncPool) -> None:
    await registered(pool, calling("top", "leaf"), leaf())
    changed = await registered(pool, calling("top", "leaf"), leaf(name="other"), may_redefine=True)
    assert changed.ids() == ("leaf", "top")


async def test_a_workflow_comes_with_everything_that_it_runs(pool: AsyncPool) -> None:
    catalogue = await registered(pool, calling("top", "mid"), calling("mid", "leaf"), leaf(), leaf(2))
    family = catalogue.with_children(catalogue.get("top"))
    assert [(one.workflow_id, one.version) for one in family] == [("top", 1), ("mid", 1), ("leaf", 2)]


async def test_a_job_goes_on_whose_definition_no_file_may_have_any_more(pool: AsyncPool) -> None:
    """An earlier build knew look-around and back-references in patterns."""
    text = {"type": "string", "pattern": r"^(?!tmp)(.)\1$"}
    child = workflow_of(chain("a"), workflow_id="leaf", inputs={"x": text})
    nodes = {**chain("a"), "a": {"type": "workflow", "workflow_id": "leaf", "inputs": {"x": "{{ inputs.x }}"}}}
    nodes["a"]["next"] = ["end"]
    pinned, _ = pin(
        {(one.workflow_id, 1): one for one in (child, workflow_of(nodes, workflow_id="top", inputs={"x": text}))}
    )
    before, now = Engine(pool, WorkflowCatalogue(pinned)), Engine(pool)
    await before.pause("all")
    job_id = await before.create("top", {"x": "aa"})
    await now.pause("all", on=False)
    await now.advance(job_id)
    waiting = {one.node.node_id: one.waiting_for for one in await now.insight.nodes(job_id)}
    assert waiting["a"] is not None
    assert waiting["a"]["kind"] == "child"
    progress = await now.insight.progress(await now.job(job_id))
    assert progress is not None
    assert progress.nodes_done == 1
    (message,) = await now.messages()
    await HandWorker(now).run(message)
    await now.advance(job_id)
    assert (await now.job(job_id)).status is JobStatus.COMPLETED
