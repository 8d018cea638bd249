"""The build before this one, unpacked from the history beside an interpreter of its own."""

import io
import site
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from cli.stack.layout import REPOSITORY, Build

PREVIOUS_FILE: Final = REPOSITORY / "infra" / "previous_build"
"""Holds the commit of the last release; docs/operations.md, "Upgrade"."""


def _git(repository: Path, *words: str) -> bytes | None:
    """Return what git says; None where it says no, or is not there."""
    try:
        return subprocess.run(("git", *words), cwd=repository, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def previous_commit(repository: Path, released: str) -> str | None:
    """Return the commit of the build before: the last release, or in a shallow clone the oldest commit there is.

    None without either: then this tree stands in for it.
    """
    if _git(repository, "cat-file", "-e", f"{released}^{{commit}}") is not None:
        return released
    if _git(repository, "rev-parse", "--is-shallow-repository") == b"true\n":
        oldest = _git(repository, "rev-list", "--max-parents=0", "HEAD") or b""
        return oldest.decode().split()[-1]
    return None


def previous_build(folder: Path) -> Build:
    """Unpack the build before into a folder; what it needs comes from the packages of this environment."""
    commit = previous_commit(REPOSITORY, PREVIOUS_FILE.read_text(encoding="utf-8").strip())
    if commit is None:
        print("upgrade: no history here, so this tree stands in for the build before")
        root = REPOSITORY
    else:
        print(f"upgrade: the build before is {commit}")
        root = folder / "tree"
        packed = _git(REPOSITORY, "archive", "--format=tar", commit)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(root, filter="data")
    return Build("previous", root, _interpreter(folder / "venv", root))


def _interpreter(folder: Path, root: Path) -> str:
    """Return a Python that finds the modules of a tree first, then this environment's packages.

    A .pth file and not PYTHONPATH: subprocesses of tasks inherit no environment. Those of the packages' own folder are
    not read from here, so this tree, which is installed by one, is not found.
    """
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(folder)), check=True)
    (own,) = (folder / "lib").glob("python3.*/site-packages")
    (own / "geodag.pth").write_text("\n".join([str(root), *site.getsitepackages()]) + "\n")
    return str(folder / "bin" / "python")


def module_file(build: Build, module: str) -> Path:
    """Return from where a build's interpreter takes a module, as a subprocess of a task would."""
    code = f"import {module}; print({module}.__file__)"
    done = subprocess.run((build.python, "-I", "-c", code), cwd="/", check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())
