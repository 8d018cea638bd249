"""What the last step of a deployment asks, asked of a running platform."""

import os
import subprocess

from cli.stack.layout import REPOSITORY
from tests.acceptance.platform import Platform


def smoke(platform: Platform, key: str, serving: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the script with an operator's key."""
    doors = (platform.gateway, platform.orchestrator, serving or platform.serving)
    env = {**os.environ, "GEODAG_OPERATOR_KEY": key}
    return subprocess.run(
        (REPOSITORY / "scripts/smoke.sh", *doors), env=env, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_canary_of_a_deployment_passes_here_and_tells_what_is_closed(platform: Platform) -> None:
    key = platform.stack.credentials.keys["operator"]
    done = smoke(platform, key)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all good" in done.stdout
    assert key not in done.stdout + done.stderr
    closed = smoke(platform, key, "http://127.0.0.1:9")
    assert (closed.returncode, closed.stderr.count("http://127.0.0.1:9/readyz does not answer well")) == (1, 1)
    stranger = smoke(platform, "gd_nobody")
    assert (stranger.returncode, stranger.stdout) == (1, "")
