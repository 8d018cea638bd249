"""Runs every house rule over the project's files and prints what they find."""

import sys
from pathlib import Path

from scripts.checks import docs, honest_tests, language, leaks, purity, sizes, sql
from scripts.checks.tree import project_files


def main() -> int:
    """Return 0 when nothing was found."""
    files = project_files(Path(__file__).resolve().parents[2])
    findings = [
        finding for check in (sql, sizes, honest_tests, purity, leaks, docs, language) for finding in check.check(files)
    ]
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings in {len(files)} files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
