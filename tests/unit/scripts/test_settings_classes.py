"""All processes' settings together: one image, one environment, no name that another process takes for a mistake."""

from function.settings import GatewaySettings
from orchestrator.settings import OrchestratorSettings
from repositories.retention import RetentionSettings
from repositories.settings import PREFIXES, SHARED_NAMES
from serving.settings import ServingSettings
from worker.settings import WorkerSettings


def test_the_names_that_any_process_may_meet_are_those_of_all_processes() -> None:
    kinds = (OrchestratorSettings, WorkerSettings, GatewaySettings, ServingSettings, RetentionSettings)
    ours = {name.upper() for kind in kinds for name in kind.model_fields if name.upper().startswith(PREFIXES)}
    assert ours == SHARED_NAMES
