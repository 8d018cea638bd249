"""The folder of workflows of a stack whose author keeps his own files elsewhere than in the checkout."""

import shutil
from pathlib import Path

PATTERN = "*.y*ml"
OPERATIONS = "operations"


class FolderTaken(Exception):
    """An author's folder is where the stack makes its own, which is emptied first."""


def gather(folders: tuple[Path, ...], target: Path) -> None:
    """Make `target` anew with the workflows and operations of all folders; of two files of one name the last counts.

    Raises:
        FolderTaken: One of them is the target, or lies in it.
    """
    for folder in folders:
        if folder.resolve().is_relative_to(target.resolve()):
            raise FolderTaken(f"{folder} is made anew at each start and would lose its files; keep yours elsewhere")
    shutil.rmtree(target, ignore_errors=True)
    for inside in (Path(), Path(OPERATIONS)):
        (target / inside).mkdir(parents=True)
        for folder in folders:
            for file in sorted((folder / inside).glob(PATTERN)):
                if file.is_file():  # an editor's lock is a link to nowhere
                    shutil.copyfile(file, target / inside / file.name)
