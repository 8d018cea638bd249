"""Documents stay true: links and names of tests lead somewhere, dependencies are explained, generated parts current."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from scripts import generated_docs
from scripts.checks.tree import Finding, SourceFile

MAX_ADR_LINES = 30
DEPENDENCIES_PAGE = "docs/dependencies.md"
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\(([^)\s]+)\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def check(files: Iterable[SourceFile]) -> Iterator[Finding]:
    """Yield what is not true in the documents."""
    pages = [file for file in files if file.name.endswith(".md")]
    for page in pages:
        yield from _check_links(page)
        yield from _check_tests(page)
        if page.name.startswith("docs/adr/") and (lines := page.text.count("\n")) > MAX_ADR_LINES:
            yield Finding(page.name, 1, f"{lines} lines; an ADR has at most {MAX_ADR_LINES}")
    project = next((file for file in files if file.name == "pyproject.toml"), None)
    if project is not None:
        yield from _check_dependencies(project)
        yield from _check_generated(project.root)


def _check_links(page: SourceFile) -> Iterator[Finding]:
    prose = _FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), page.text)
    for found in _LINK.finditer(prose):
        target = unquote(found.group(1) or found.group(2))
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.path.parent / path) if path else page.path
        line = prose.count("\n", 0, found.start()) + 1
        if not linked.exists():
            yield Finding(page.name, line, f"the link {target} leads nowhere")
        elif anchor and linked.suffix == ".md" and anchor not in anchors(linked.read_text(encoding="utf-8")):
            yield Finding(page.name, line, f"there is no heading for #{anchor}")


def _check_tests(page: SourceFile) -> Iterator[Finding]:
    for number, line in page.lines():
        for name, test in _TEST.findall(line):
            module = page.root / name
            if not module.exists() or (test and f"def {test}(" not in module.read_text(encoding="utf-8")):
                yield Finding(page.name, number, f"there is no test {name}{'::' if test else ''}{test}")


def anchors(text: str) -> frozenset[str]:
    """Return the anchors that a Markdown page's headings get."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def declared(project: dict[str, Any]) -> frozenset[str]:
    """Return the names of everything that pyproject.toml asks for, without geodag itself."""
    table = project["project"]
    wanted = [*table.get("dependencies", ()), *project["build-system"]["requires"]]
    for extra in table.get("optional-dependencies", {}).values():
        wanted.extend(extra)
    names = (re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower() for requirement in wanted)
    return frozenset(names) - {table["name"]}


def _check_dependencies(project: SourceFile) -> Iterator[Finding]:
    page = project.root / DEPENDENCIES_PAGE
    text = page.read_text(encoding="utf-8").lower() if page.exists() else ""
    explained = set(re.findall(r"^\|\s*`([^`]+)`", text, re.MULTILINE))
    names = declared(tomllib.loads(project.text))
    for name in sorted(names - explained):
        yield Finding(DEPENDENCIES_PAGE, 1, f"{name} is asked for in pyproject.toml and has no line here")
    for name in sorted(explained - names):
        yield Finding(DEPENDENCIES_PAGE, 1, f"{name} has a line here and is not asked for in pyproject.toml")


def _check_generated(root: Path) -> Iterator[Finding]:
    for name in generated_docs.PAGES:
        page = root / name
        if not page.exists() or generated_docs.updated(text := page.read_text(encoding="utf-8")) != text:
            yield Finding(name, 1, "its generated parts are not current; run python -m scripts.generated_docs")
    for name, generate in generated_docs.FILES.items():
        file = root / name
        if not file.exists() or file.read_text(encoding="utf-8") != generate():
            yield Finding(name, 1, "it is not current; run python -m scripts.generated_docs")
