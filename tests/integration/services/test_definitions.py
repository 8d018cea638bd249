"""What a database already knows of a workflow version decides whether a file may still be run."""

from typing import Any

import pytest

from core.dag.catalogue import WorkflowCatalogue, load_folder
from core.dag.definition import Workflow
from core.dag.pinning import pin
from core.errors import NotFound
from core.statuses import JobStatus
from repositories.database import AsyncPool
from repositories.workflows import WorkflowRepository
from services.shelf import Shelf
from services.work import pipelined
from tests.support.engine import Engine, HandWorker
from tests.unit.core.dag.harness import chain, task, workflow_of


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


async def test_the_stored_content_of_a_version_stays_in_use_with_all_that_run_it(
    pool: AsyncPool,
) -> None:
    tree = calling("top", "mid"), calling("mid", "leaf"), leaf()
    before = await registered(pool, *tree)
    assert before.ids() == ("leaf", "mid", "top")
    assert (await registered(pool, *tree)).broken == ()
    changed = await registered(pool, *tree[:2], leaf(name="other"), workflow_of(chain("a"), workflow_id="alone"))
    assert changed.ids() == ("alone", "leaf", "mid", "top")
    (broken,) = changed.broken
    assert broken.file == "leaf version 1"
    assert "which stays in use; give the change a new version" in broken.error
    for name in ("leaf", "mid", "top"):
        assert changed.get(name).definition_hash == before.get(name).definition_hash
    mended = await registered(pool, *tree[:2], leaf(), leaf(2, name="other"))
    assert (mended.broken, mended.get("leaf").version) == ((), 2)


async def test_what_does_not_fit_the_stored_child_is_broken(pool: AsyncPool) -> None:
    await registered(pool, leaf())
    wide = leaf(inputs={"x": {"type": "string"}})
    nodes = {**chain("a"), "a": {"type": "workflow", "workflow_id": "leaf", "inputs": {"x": "1"}, "next": ["end"]}}
    changed = await registered(pool, wide, workflow_of(nodes, workflow_id="top"))
    assert changed.ids() == ("leaf",)
    assert "workflow leaf has no input 'x'" in changed.broken[1].error


FILE = """\
workflow_id: demo
version: {version}
nodes:
  start: {{type: start, next: say}}
  say: {{handler: echo, params: {{said: {said}}}, next: {next}}}
  end: {{type: end}}
"""


async def shelf_of(pool: AsyncPool, *texts: str) -> Shelf:
    files = {f"demo_{number}.yaml": text for number, text in enumerate(texts)}
    shelf = Shelf(load_folder(files), files)
    async with pipelined(pool) as conn:
        await shelf.register(conn, may_redefine=False)
    return shelf


async def test_a_file_that_was_edited_in_place_is_listed_by_its_name(pool: AsyncPool) -> None:
    stored = (await shelf_of(pool, FILE.format(version=1, said="a", next="end"))).get("demo")
    edited = await shelf_of(pool, FILE.format(version=1, said="b", next="end"))
    assert edited.get("demo").definition_hash == stored.definition_hash
    (broken,) = edited.catalogue.broken
    assert (broken.file, broken.error.partition(" is stored")[0]) == ("demo_0.yaml", "demo_0.yaml: demo version 1")


async def test_whoever_asks_for_a_workflow_of_a_broken_file_is_told_what_is_wrong(pool: AsyncPool) -> None:
    shelf = await shelf_of(
        pool,
        FILE.format(version=1, said="a", next="end"),
        FILE.format(version=2, said="a", next="nowhere"),
        FILE.format(version=1, said="a", next="gone, when: x").replace("demo", "other"),
    )
    assert shelf.get("demo").version == 1
    with pytest.raises(NotFound, match=r"no version 2: its file is broken: demo_1.yaml:5: node say: .*nowhere") as told:
        shelf.get("demo", 2)
    assert "geodag workflow lint ." in str(told.value.detail.remediation)
    with pytest.raises(NotFound, match=r"no workflow 'other': its file is broken: demo_2.yaml:5: .*and \d more"):
        shelf.get("other")
    with pytest.raises(NotFound, match=r"has no version 3$"):
        shelf.get("demo", 3)
    with pytest.raises(NotFound, match=r"no workflow 'never'$"):
        shelf.get("never")
    with pytest.raises(NotFound, match=r"no workflow 'dem'; did you mean demo\?$"):
        shelf.get("dem")


async def test_a_new_version_of_a_child_needs_no_new_version_of_its_parents(pool: AsyncPool) -> None:
    before = await registered(pool, calling("top", "leaf"), leaf())
    after = await registered(pool, calling("top", "leaf"), leaf(), leaf(2))
    assert after.broken == ()
    assert before.get("top").definition_hash != after.get("top").definition_hash
    assert after.get("top").pins == {after.get("leaf", 2).definition_hash}
    changed = await registered(pool, calling("top", "leaf", name="other"), leaf(), leaf(2))
    assert [one.file for one in changed.broken] == ["top version 1"]
    assert changed.get("top").name == after.get("top").name


async def test_what_was_stored_first_counts_whatever_came_after_it(pool: AsyncPool) -> None:
    await registered(pool, leaf())
    await registered(pool, leaf(name="other"), may_redefine=True)
    assert (await registered(pool, leaf())).broken == ()
    changed = await registered(pool, leaf(name="other"))
    assert (len(changed.broken), changed.get("leaf").name) == (1, leaf().name)


async def test_a_stored_version_that_nobody_can_read_any_more_takes_its_file_away(pool: AsyncPool) -> None:
    await registered(pool, leaf())
    async with pool.connection() as conn:
        await conn.execute("UPDATE dagapp.dag_workflows SET definition = '{}'")
    changed = await registered(pool, calling("top", "leaf"), leaf(name="other"))
    assert changed.ids() == ()
    assert [one.file for one in changed.broken] == ["leaf version 1", "top version 1"]


async def test_in_development_a_version_may_get_other_content(pool: AsyncPool) -> None:
    await registered(pool, calling("top", "leaf"), leaf())
    changed = await registered(pool, calling("top", "leaf"), leaf(name="other"), may_redefine=True)
    assert changed.ids() == ("leaf", "top")


async def test_a_stored_definition_with_a_text_that_would_not_load_any_more_stays_in_use(pool: AsyncPool) -> None:
    nodes = calling("top", "leaf").to_json()["nodes"]
    nodes["b"] = task(params={"v": "{{ nodes.a.output.x.upper() }}"}, next=["end"])
    nodes["a"]["next"] = ["b"]
    earlier = workflow_of(nodes, workflow_id="top")
    async with pipelined(pool) as conn:
        await WorkflowRepository(conn).insert(earlier.definition_hash, "top", 1, earlier.text)
    changed = await registered(pool, calling("top", "leaf"), leaf())
    assert (changed.ids(), [one.file for one in changed.broken]) == (("leaf", "top"), ["top version 1"])
    assert "b" in changed.get("top").nodes


async def test_a_job_goes_on_whose_parent_does_not_fit_a_new_version_of_the_child(pool: AsyncPool) -> None:
    top = calling("top", "leaf", outputs={"got": "{{ nodes.a.output.x }}"})
    old, _ = pin({("top", 1): top, ("leaf", 1): leaf(outputs={"x": 1})})
    new, troubles = pin({("top", 1): top, ("leaf", 1): leaf(outputs={"x": 1}), ("leaf", 2): leaf(2)})
    assert (new.keys(), troubles.keys()) == ({("leaf", 1), ("leaf", 2)}, {("top", 1)})
    before, now = Engine(pool, WorkflowCatalogue(old)), Engine(pool, WorkflowCatalogue(new))
    job_id = await before.create("top")
    for expected in (1, 2):
        await now.advance(job_id)
        *_, message = await now.messages()
        await HandWorker(now).run(message)
        await now.advance(message.job_id, job_id)
        await now.advance(job_id)
        job = await now.job(job_id)
        assert (job.run_no, job.status, job.outputs) == (expected, JobStatus.COMPLETED, {"got": 1})
        await now.order(job_id, "rerun")


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
