"""Which commit stands for the build before, in a whole history, a shallow one, and none."""

import subprocess
from pathlib import Path

from cli.stack.layout import REPOSITORY
from tests.azure.upgrade.builds import PREVIOUS_FILE, previous_commit

NEVER = "0" * 40


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(("git", *identity, *words), cwd=folder, check=True, capture_output=True, text=True).stdout


def test_the_build_before_is_the_release_or_the_oldest_commit_of_a_shallow_clone(tmp_path: Path) -> None:
    whole, shallow, nothing = (tmp_path / name for name in ("whole", "shallow", "nothing"))
    for folder in (whole, nothing):
        folder.mkdir()
    git(whole, "init", "-q")
    for word in ("first", "second", "third"):
        git(whole, "commit", "-q", "--allow-empty", "-m", word)
    first, second, third = reversed(git(whole, "rev-list", "HEAD").split())
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{whole}", "shallow")

    assert previous_commit(whole, first) == first
    assert previous_commit(whole, NEVER) is None
    assert previous_commit(shallow, first) == second
    assert previous_commit(shallow, third) == third
    assert previous_commit(nothing, first) is None


def test_the_release_before_is_written_as_a_whole_commit_id() -> None:
    released = PREVIOUS_FILE.read_text(encoding="utf-8")
    assert PREVIOUS_FILE.is_relative_to(REPOSITORY)
    assert len(released.strip()) == 40
    assert released == f"{int(released, 16):040x}\n"
