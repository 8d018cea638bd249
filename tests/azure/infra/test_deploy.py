"""scripts/deploy.sh against recorders of `az` and `curl`: the right commands in order, and back when one fails."""

import itertools
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "ghcr.io/osgeo/gdal@sha256:" + "0" * 64
AZ = r"""#!/bin/sh
echo "az $*" >>"$RECORD"
if [ -n "$FAIL" ] && echo "$*" | grep -q -- "$FAIL"; then echo "az: no" >&2; exit 1; fi
case "$*" in
  "acr repository show"*) [ "$EXISTS" = yes ] ;;
  "containerapp job start"*) echo execution-1 ;;
  "containerapp job execution show"*) echo "$MIGRATION" ;;
  "webapp config container show"*) echo "demoacr.azurecr.io/demo-orchestrator:$PREVIOUS" ;;
  "webapp config container set"*) echo "$*" | sed 's/.*-image-name [^ ]*:\([^ ]*\).*/\1/' >"$RECORD.running" ;;
  "functionapp config appsettings set"*) echo "$*" | sed 's/.*BUILD_ID=\([^ ]*\).*/\1/' >"$RECORD.running" ;;
esac
"""
CURL = r"""#!/bin/sh
cat >"$RECORD.stdin"
for last; do :; done
echo "curl $last" >>"$RECORD"
if [ -n "$DEAD" ] && [ "$(cat "$RECORD.running")" = "$DEAD" ]; then exit 22; fi
printf '{"build_id":"%s"}' "$(cat "$RECORD.running")"
"""
PYTHON = """#!/bin/sh
echo "python $*" >>"$RECORD"
if [ -n "$FAIL" ] && echo "python $*" | grep -q -- "$FAIL"; then exit 1; fi
"""
SMOKE = """#!/bin/sh
echo "smoke $*" >>"$RECORD"
[ "$SMOKE" != fails ]
"""


@dataclass
class Deployment:
    """A small repository with the real script, and what was recorded of its runs."""

    folder: Path
    builds: list[str] = field(default_factory=list)

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ("git", *identity, *words), cwd=self.folder / "repo", check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, migration: str) -> str:
        (self.folder / "repo/repositories/migrations" / migration).write_text("SELECT 1;\n")
        self.git("add", "-A")
        self.git("commit", "-qm", migration)
        self.builds.append(self.git("rev-parse", "--short=12", "HEAD"))
        return self.builds[-1]

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "record").unlink(missing_ok=True)
        defaults = {"FAIL": "", "EXISTS": "no", "MIGRATION": "Succeeded", "SMOKE": "", "DEAD": ""}
        env = {
            **defaults,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "RECORD": str(self.folder / "record"),
            "PREVIOUS": self.builds[-2] if len(self.builds) > 1 else "",
            "DEPLOY_WAIT_SECONDS": "0",
            "DEPLOY_PAUSE_SECONDS": "0",
            "GEODAG_OPERATOR_KEY": "gd_secret",
            **environment,
        }
        command = (self.folder / "repo/scripts/deploy.sh", "--group", "rg", "--prefix", "demo", *words)
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def deploy(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("--gdal-image", DIGEST, *words, **environment)

    def recorded(self, *starts: str) -> list[str]:
        """Return what was called, without the words that name resources."""
        path = self.folder / "record"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not starts or line.startswith(starts)]

    def steps(self) -> list[str]:
        """Return what changed something, in short words."""
        found = []
        for line in self.recorded():
            words = line.split()
            if words[0] == "az" and words[1:4] != ["acr", "repository", "show"] and " show" not in line:
                verb = itertools.takewhile(lambda word: not word.startswith("--"), words[1:])
                name = words[words.index("--name") + 1] if "--name" in words else ""
                found.append(" ".join([*verb, name]).strip())
            elif words[0] == "smoke":
                found.append("smoke")
        return found


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Return a repository of two builds; the second has one more migration, which only expands."""
    binaries, repository = tmp_path / "bin", tmp_path / "repo"
    for folder in (binaries, repository / "scripts", repository / "repositories/migrations", repository / ".venv/bin"):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "scripts/deploy.sh", repository / "scripts")
    programs = {binaries / "az": AZ, binaries / "curl": CURL, repository / ".venv/bin/python": PYTHON}
    for path, text in {**programs, repository / "scripts/smoke.sh": SMOKE}.items():
        path.write_text(text)
        path.chmod(0o755)
    (repository / ".gitignore").write_text(".venv/\n")
    made = Deployment(tmp_path)
    made.git("init", "-q", "-b", "main")
    made.commit("0001_first.sql")
    made.commit("0002_more.sql")
    return made


BUILD = ["acr build", "acr build"]
MIGRATE = ["containerapp job update demo-migrate", "containerapp job start demo-migrate"]
ORCHESTRATOR = ["webapp config container set demo-orchestrator", "webapp restart demo-orchestrator"]
SERVING = ["webapp config container set demo-serving", "webapp restart demo-serving"]
WORKERS = ["containerapp update demo-worker-light", "containerapp job update demo-worker-heavy"]
GATEWAY = ["functionapp config appsettings set demo-gateway", "functionapp deployment source config-zip demo-gateway"]
ALL = [*ORCHESTRATOR, *SERVING, *WORKERS, *GATEWAY]


def test_a_deployment_builds_migrates_sets_restarts_and_waits_in_this_order(deployment: Deployment) -> None:
    done = deployment.deploy()
    new = deployment.builds[-1]
    assert done.returncode == 0, done.stderr
    assert deployment.steps() == [*BUILD, *MIGRATE, *ALL, "smoke"]
    for line in deployment.recorded("az acr build"):
        assert f":{new} --build-arg BUILD_ID={new}" in line
        assert "--platform linux/amd64" in line
        assert "latest" not in line
    assert DIGEST in deployment.recorded("az acr build")[1]
    ready = [line.removeprefix("curl https://demo-") for line in deployment.recorded("curl")]
    assert ready == [
        "orchestrator.azurewebsites.net/readyz",
        "orchestrator.azurewebsites.net/health",
        "serving.azurewebsites.net/readyz",
        "serving.azurewebsites.net/health",
        "gateway.azurewebsites.net/api/readyz",
        "gateway.azurewebsites.net/api/openapi.json",
    ]
    assert "gd_secret" in (deployment.folder / "record.stdin").read_text()
    assert "gd_secret" not in "".join([*deployment.recorded(), done.stdout, done.stderr])


def test_a_dry_run_calls_nothing_and_shows_the_same_commands(deployment: Deployment) -> None:
    shown = deployment.deploy("--dry-run")
    assert shown.returncode == 0
    assert deployment.recorded() == []
    planned = [line.removeprefix("+ ") for line in shown.stdout.splitlines() if line.startswith("+ az")]
    assert deployment.deploy().returncode == 0
    done = [line for line in deployment.recorded("az") if " show " not in line]
    assert [line.split(" --src ")[0] for line in planned] == [line.split(" --src ")[0] for line in done]


def test_images_that_exist_are_never_built_again(deployment: Deployment) -> None:
    assert deployment.deploy(EXISTS="yes").returncode == 0
    assert deployment.steps() == [*MIGRATE, *ALL, "smoke"]


@pytest.mark.parametrize(
    ("fail", "environment", "steps"),
    [
        ("-f Dockerfile .", {}, ["acr build"]),
        ("-f Dockerfile.worker", {}, BUILD),
        ("container show", {}, BUILD),
        ("job update --name demo-migrate", {}, [*BUILD, MIGRATE[0]]),
        ("job start", {}, [*BUILD, *MIGRATE]),
        ("", {"MIGRATION": "Failed"}, [*BUILD, *MIGRATE]),
        ("", {"MIGRATION": "Running"}, [*BUILD, *MIGRATE]),
    ],
    ids=["image", "worker-image", "running-build", "migrate-update", "migrate-start", "migrate-fails", "migrate-hangs"],
)
def test_a_failure_before_the_first_change_stops(
    deployment: Deployment, fail: str, environment: dict[str, str], steps: list[str]
) -> None:
    done = deployment.deploy(FAIL=fail, **environment)
    assert done.returncode == 1
    assert deployment.steps() == steps
    assert "nothing was changed" in done.stderr or "runs on" in done.stderr


@pytest.mark.parametrize(
    ("fail", "back"),
    [
        ("container-image-name demoacr.azurecr.io/demo-orchestrator:{new}", ORCHESTRATOR),
        ("container-image-name demoacr.azurecr.io/demo-worker:{new}", [*ORCHESTRATOR, *SERVING]),
        ("demo-worker-light --resource-group rg --image [^ ]*{new}", [*ORCHESTRATOR, *SERVING, *WORKERS]),
        ("demo-worker-heavy --resource-group rg --image [^ ]*{new}", [*ORCHESTRATOR, *SERVING, *WORKERS]),
        ("BUILD_ID={new} --output none", ALL),
    ],
    ids=["orchestrator", "serving", "light", "heavy", "gateway"],
)
def test_a_failure_at_a_part_takes_the_changed_parts_back(deployment: Deployment, fail: str, back: list[str]) -> None:
    old, new = deployment.builds
    # The pattern also meets the image's build, which names it otherwise.
    done = deployment.deploy(FAIL=fail.format(new=new))
    assert done.returncode == 1
    assert f"failed; {old} runs again" in done.stderr
    assert deployment.steps()[-len(back) :] == back
    assert all(f":{old}" in line for line in deployment.recorded("az webapp config container set")[-1:])


@pytest.mark.parametrize(
    ("fail", "part", "steps"),
    [
        ("webapp restart --name demo-orchestrator", "orchestrator", [*ORCHESTRATOR, *ORCHESTRATOR]),
        ("webapp restart --name demo-serving", "serving", [*ORCHESTRATOR, *SERVING, *ORCHESTRATOR, *SERVING]),
        ("scripts/functions_package.py", "gateway", [*ALL[:-2], *ALL[:-2]]),
        ("config-zip", "gateway", [*ALL, *ALL]),
    ],
    ids=["restart", "serving-restart", "package", "zip"],
)
def test_what_fails_on_the_way_back_too_is_named(
    deployment: Deployment, fail: str, part: str, steps: list[str]
) -> None:
    done = deployment.deploy(FAIL=fail)
    assert done.returncode == 1
    assert f"going back failed at {part}" in done.stderr
    assert deployment.steps() == [*BUILD, *MIGRATE, *steps]


def test_a_rollback_that_fails_says_where_to_read_on(deployment: Deployment) -> None:
    old, new = deployment.builds
    done = deployment.run("--rollback", old, EXISTS="yes", PREVIOUS=new, FAIL="demo-worker-light")
    assert (done.returncode, deployment.steps()) == (1, [*ORCHESTRATOR, *SERVING, WORKERS[0]])
    assert "going back failed" in done.stderr


def test_heavy_workers_on_an_app_service_are_set_and_taken_back_as_a_site(deployment: Deployment) -> None:
    site = ["webapp config container set demo-worker", "webapp restart demo-worker"]
    parts = [*ORCHESTRATOR, *SERVING, WORKERS[0], *site]
    done = deployment.deploy("--heavy-on", "appService")
    assert done.returncode == 0, done.stderr
    assert deployment.steps() == [*BUILD, *MIGRATE, *parts, *GATEWAY, "smoke"]
    assert "curl https://demo-worker.azurewebsites.net/health" in deployment.recorded("curl")
    done = deployment.deploy("--heavy-on", "appService", FAIL=f"BUILD_ID={deployment.builds[-1]} --output none")
    assert (done.returncode, deployment.steps()[-len(parts) - 2 :]) == (1, [*parts, *GATEWAY])


@pytest.mark.parametrize("trouble", [{"SMOKE": "fails"}, {"DEAD": "{new}"}], ids=["smoke", "never-ready"])
def test_a_build_that_does_not_do_its_work_is_taken_back(deployment: Deployment, trouble: dict[str, str]) -> None:
    old, new = deployment.builds
    done = deployment.deploy(**{name: value.format(new=new) for name, value in trouble.items()})
    assert done.returncode == 1
    assert f"{old} runs again" in done.stderr


def test_no_way_back_leads_over_a_schema_that_the_old_build_does_not_speak(deployment: Deployment) -> None:
    old = deployment.builds[-1]
    deployment.commit("0003_contract_old_column.sql")
    done = deployment.deploy(SMOKE="fails")
    assert done.returncode == 1
    assert f"{old} does not speak the present schema: 0003_contract_old_column.sql" in done.stdout + done.stderr
    assert deployment.steps()[-1] == "smoke"
    refused = deployment.run("--rollback", old, EXISTS="yes", PREVIOUS=deployment.builds[-1])
    assert (refused.returncode, deployment.steps()) == (1, [])


def test_a_rollback_sets_every_part_and_migrates_nothing(deployment: Deployment) -> None:
    old, new = deployment.builds
    done = deployment.run("--rollback", old, EXISTS="yes", PREVIOUS=new)
    assert done.returncode == 0, done.stderr
    assert deployment.steps() == ALL
    assert f"{old} runs" in done.stdout
    gone = deployment.run("--rollback", old, EXISTS="no", PREVIOUS=new)
    assert (gone.returncode, deployment.steps()) == (1, [])


@pytest.mark.parametrize(
    "words",
    [("--gdal-image", "ghcr.io/osgeo/gdal:latest"), (), ("--what",), ("--heavy-on", "vm")],
    ids=["base-without-digest", "no-base", "unknown-word", "unknown-place"],
)
def test_a_wrong_call_stops_at_once(deployment: Deployment, words: tuple[str, ...]) -> None:
    assert deployment.run(*words).returncode == 64
    assert deployment.recorded() == []


def test_what_is_not_committed_is_not_deployed(deployment: Deployment) -> None:
    (deployment.folder / "repo/new.py").write_text("")
    done = deployment.deploy()
    assert (done.returncode, deployment.recorded()) == (1, [])
    assert "commit first" in done.stderr
