"""How the parts of a stack are started: which settings each gets and which secrets it does not."""

from pathlib import Path

import pytest

from cli.stack import azurite
from cli.stack.credentials import Credentials, ensure_credentials
from cli.stack.definitions import FolderTaken, gather
from cli.stack.identity import ensure_identities
from cli.stack.layout import REPOSITORY, BlobsKind, Home, Plan, QueueKind, Shape, kind_of
from cli.stack.servicebus import PeerMissing
from cli.stack.stack import Stack, StackError


def make_plan(home: Path, shape: Shape | None = None) -> Plan:
    shape = shape or Shape()
    ports = {name: 20000 + n for n, name in enumerate(shape.port_names)}
    identities = ensure_identities(home / "identity.json") if shape.identity else None
    return Plan(Home(home), shape, ports, ensure_credentials(home), identities)


def secrets_of(credentials: Credentials) -> list[str]:
    return [
        *credentials.keys.values(),
        *credentials.passwords.values(),
        credentials.upload_key,
        credentials.secrets_key,
        credentials.service_bus_key,
    ]


def test_workflows_of_an_author_lie_beside_those_of_the_checkout(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "operations").mkdir(parents=True)
    (mine / "own.yaml").write_text("workflow_id: own")
    (mine / "echo_test.yaml").write_text("workflow_id: mine")
    (mine / "notes.txt").write_text("no workflow")
    (mine / ".#own.yaml").symlink_to("an editor has it open")
    (mine / "operations" / "own.yml").write_text("operation: own")
    plan = make_plan(tmp_path / "home", Shape(workflows=mine))
    folder = Path(plan.spec("orchestrator-1").environment["WORKFLOWS_DIR"])
    for _ in range(2):
        gather((REPOSITORY / "workflows", mine), folder)
        found = {file.name for file in folder.iterdir()}
        assert found >= {"own.yaml", "hello_world.yaml", "operations"}
        assert "notes.txt" not in found
        assert (folder / "echo_test.yaml").read_text() == "workflow_id: mine"
        assert {file.name for file in (folder / "operations").iterdir()} > {"own.yml"}
        (folder / "gone.yaml").write_text("left over")
    plain = make_plan(tmp_path / "other")
    assert Path(plain.spec("orchestrator-1").environment["WORKFLOWS_DIR"]) == REPOSITORY / "workflows"


@pytest.mark.parametrize("inside", ["", "mine"])
def test_a_folder_of_workflows_that_is_emptied_at_each_start_is_refused_untouched(tmp_path: Path, inside: str) -> None:
    mine = Home(tmp_path).workflows / inside
    mine.mkdir(parents=True)
    (mine / "own.yaml").write_text("workflow_id: own")
    linked = tmp_path / "linked"
    linked.symlink_to(mine)
    for folder in (mine, linked):
        with pytest.raises(FolderTaken, match="keep yours elsewhere"):
            gather((REPOSITORY / "workflows", folder), Home(tmp_path).workflows)
        with pytest.raises(StackError, match="keep yours elsewhere"):
            Stack(tmp_path, shape=Shape(workflows=folder)).start()
    assert (mine / "own.yaml").read_text() == "workflow_id: own"


@pytest.mark.parametrize("queue", QueueKind)
def test_no_secret_stands_on_a_command_line(tmp_path: Path, queue: QueueKind) -> None:
    plan = make_plan(tmp_path, Shape(queue=queue))
    words = " ".join(" ".join(plan.spec(name).argv) for name in plan.shape.part_names)
    assert not [secret for secret in secrets_of(plan.credentials) if secret in words]


@pytest.mark.parametrize(
    ("part", "own"),
    [
        ("orchestrator-1", {"geodag_orchestrator"}),
        ("worker-light-1", {"geodag_worker"}),
        ("gateway", {"geodag_gateway"}),
        ("serving", {"geodag_serving"}),
        ("balancer", set()),
    ],
)
def test_a_part_gets_the_password_of_its_own_role_alone(tmp_path: Path, part: str, own: set[str]) -> None:
    plan = make_plan(tmp_path)
    given = set(plan.spec(part).environment.values())
    assert {role for role, password in plan.credentials.passwords.items() if password in given} == own


@pytest.mark.parametrize(
    ("part", "own"), [("gateway", {"gateway"}), ("worker-heavy-1", {"worker"}), ("serving", set())]
)
def test_a_part_gets_its_own_service_key_alone(tmp_path: Path, part: str, own: set[str]) -> None:
    plan = make_plan(tmp_path)
    given = set(plan.spec(part).environment.values())
    assert {subject for subject, key in plan.credentials.keys.items() if key in given} == own


def test_only_an_allow_list_of_the_own_environment_is_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    monkeypatch.setenv("WORKER_SURPRISE", "1")
    environment = make_plan(tmp_path).spec("worker-light-1").environment
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert "WORKER_SURPRISE" not in environment


def test_the_narrowest_override_wins(tmp_path: Path) -> None:
    overrides = {"all": {"LOG_LEVEL": "A"}, "worker": {"LOG_LEVEL": "B"}, "worker-light-1": {"LOG_LEVEL": "C"}}
    plan = make_plan(tmp_path, Shape(overrides=overrides))
    levels = {name: plan.spec(name).environment.get("LOG_LEVEL") for name in plan.shape.part_names}
    assert levels["worker-light-1"] == "C"
    assert levels["worker-heavy-1"] == "B"
    assert levels["gateway"] == "A"
    assert levels["balancer"] is None


def test_the_balancer_knows_every_orchestrator(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, Shape(orchestrators=3))
    argv = plan.spec("balancer").argv
    assert [argv[n + 1] for n, word in enumerate(argv) if word == "--upstream"] == [
        f"127.0.0.1:{plan.ports[name]}" for name in plan.shape.orchestrator_names
    ]


def test_parts_are_named_by_kind_size_and_number() -> None:
    shape = Shape(orchestrators=1, light=2, heavy=1, gateway=False)
    assert shape.part_names == (
        "orchestrator-1",
        "balancer",
        "serving",
        "worker-light-1",
        "worker-light-2",
        "worker-heavy-1",
    )
    assert [kind_of(name) for name in shape.part_names[-2:]] == ["worker", "worker"]


def test_a_stack_on_service_bus_starts_the_peer_first_and_only_those_who_use_it_know_where_it_is(
    tmp_path: Path,
) -> None:
    plan = make_plan(tmp_path, Shape(queue=QueueKind.SERVICEBUS))
    assert plan.shape.part_names[0] == "servicebus"
    given = {name: plan.spec(name).environment for name in plan.shape.part_names}
    knowing = {name for name, values in given.items() if "SERVICE_BUS_CONNECTION_STRING" in values}
    assert knowing == {name for name in plan.shape.part_names if kind_of(name) in {"orchestrator", "worker"}}
    assert f"sb://127.0.0.1:{plan.ports['servicebus']};" in given["worker-light-1"]["SERVICE_BUS_CONNECTION_STRING"]


def test_a_stack_on_service_bus_outside_a_checkout_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.stack.servicebus.MAIN", tmp_path / "none")
    with pytest.raises(PeerMissing, match="only a checkout"):
        make_plan(tmp_path, Shape(queue=QueueKind.SERVICEBUS)).spec("servicebus")


def test_no_other_user_looks_into_the_folders_of_a_home(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (home.blobs / "silver").mkdir(parents=True)
    home.blobs.chmod(0o755)
    for _ in range(2):
        home.make_folders()
    made = {one.name: one.stat().st_mode & 0o777 for one in home.root.iterdir()}
    assert made == dict.fromkeys(("blobs", "logs", "run", "workers"), 0o700)
    assert sorted(one.name for one in home.blobs.iterdir()) == ["bronze", "external", "silver"]


def test_a_stack_that_lacks_its_storage_says_so_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azurite, "MAIN", tmp_path / "none.js")
    with pytest.raises(StackError, match=r"run \./scripts/azurite/install"):
        Stack(tmp_path / "home", ports={}, shape=Shape(blobs=BlobsKind.AZURITE)).start()
    assert not list((tmp_path / "home").rglob("*.log"))


def test_with_identities_a_part_has_its_own_secret_of_the_endpoint_and_no_key_or_password(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, Shape(queue=QueueKind.SERVICEBUS, blobs=BlobsKind.AZURITE, identity=True))
    assert plan.identities is not None
    assert plan.shape.part_names[:3] == ("identity", "servicebus", "azurite")
    ours = {name for name in plan.shape.part_names if kind_of(name) in {"orchestrator", "worker", "gateway", "serving"}}
    for name in plan.shape.part_names:
        spec = plan.spec(name)
        words = {*spec.environment, *spec.environment.values(), *spec.argv}
        headers = {kind for kind, one in plan.identities.identities.items() if one.header in words}
        assert headers == ({kind_of(name)} if name in ours else set())
        forbidden = {"POSTGRES_PASSWORD", "SERVICE_BUS_CONNECTION_STRING", "BLOB_CONNECTION_STRING"}
        assert not words & forbidden
        assert not words & {*plan.credentials.passwords.values(), plan.credentials.service_bus_key}
        assert "--tls-only" in spec.argv or name != "servicebus"
    assert ensure_identities(tmp_path / "identity.json") == plan.identities
    assert (tmp_path / "identity.json").stat().st_mode & 0o777 == 0o600
