"""Makes the folder that is deployed as the Functions app, and a zip of it.

`python -m scripts.functions_package [FOLDER [FILE...]]` (default `build/functions`): the tracked files that
`.funcignore` lets through, `requirements.txt`, which is the gateway's part of the lock, and further files of this
deployment (`platforms.json`). Deploy it with `scripts/deploy.sh`, or with
`func azure functionapp publish NAME` from within the folder.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

ROOT: Final = Path(__file__).resolve().parents[1]
IGNORE_FILE: Final = ".funcignore"


def tracked_files() -> list[str]:
    """Return the project's files as git knows them, new ones too; what git ignores is never deployed."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in listed.splitlines() if (ROOT / name).is_file())


def deployed(names: Iterable[str], ignored: str) -> list[str]:
    """Return the files that patterns in the language of .gitignore let through."""
    patterns = GitIgnoreSpec.from_lines(ignored.splitlines())
    return [name for name in names if not patterns.match_file(name)]


def write_package(folder: Path) -> list[str]:
    """Write the deployable folder anew and return the names of its files."""
    shutil.rmtree(folder, ignore_errors=True)
    names = deployed(tracked_files(), (ROOT / IGNORE_FILE).read_text(encoding="utf-8"))
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    shutil.copyfile(ROOT / "infra" / "requirements" / "gateway.txt", folder / "requirements.txt")
    return [*names, "requirements.txt"]


def main(arguments: list[str]) -> int:
    """Write the folder and the zip beside it."""
    folder = Path(arguments[0] if arguments else ROOT / "build" / "functions").resolve()
    names = write_package(folder)
    for extra in arguments[1:]:
        shutil.copy(extra, folder)
    archive = shutil.make_archive(str(folder), "zip", folder)
    print(f"functions_package: {len(names)} files in {folder}, {Path(archive).stat().st_size // 1024} KiB in {archive}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
