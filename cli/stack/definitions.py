"""The folder of workflows of a stack whose author keeps his own files elsewhere than in the checkout."""

import shutil
from pathlib import Path

PATTERN = "*.y*ml"
OPERATIONS = "operations"


def gather(folders: tuple[Path, ...], target: Path) -> None:
    """Make `target` anew with the workflows and operations of all folders; of two files of one name the last counts."""
    shutil.rmtree(target, ignore_errors=True)
    for inside in (Path(), Path(OPERATIONS)):
        (target / inside).mkdir(parents=True)
        for folder in folders:
            for file in sorted((folder / inside).glob(PATTERN)):
                shutil.copyfile(file, target / inside / file.name)
