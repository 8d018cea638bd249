from orchestrator.deps import workflow_view
from tests.unit.core.dag.harness import chain, workflow_of


def test_lists_tell_the_words_for_people() -> None:
    workflow = workflow_of(chain("a"), name="Demo", description="Says hello.", reversed_by="undo")
    told = workflow_view(workflow)
    assert (told["name"], told["description"], told["reversed_by"]) == ("Demo", "Says hello.", "undo")
