"""Writes the parts of the documents that the code knows better: state diagrams, the access table, settings.

`python -m scripts.generated_docs` rewrites what stands between `<!-- generated: NAME -->` and `<!-- /generated -->`,
and files that are generated as a whole; `scripts/check` fails when one is not current.
"""

import itertools
import json
import re
import sys
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from core.access import ACCESS_TABLE, Audience, Door
from core.dag.author_schema import author_schema
from core.identity import Role
from core.lifecycle import (
    ASSET_RULES,
    PROCESSING_TRANSITIONS,
    RULES,
    AssetCommand,
    Command,
    is_asset_open,
    is_open,
)
from core.models.business import ApprovalState, Clearance, ProcessingState
from core.proxying import ALLOWED
from core.raster_rules import by_subject
from core.statuses import ATTEMPT_TRANSITIONS, JOB_TRANSITIONS, NODE_TRANSITIONS
from function.settings import GatewaySettings
from orchestrator.settings import OrchestratorSettings
from repositories.retention import RetentionSettings
from repositories.settings import DatabaseSettings, ProcessSettings
from scripts.generated_docs_api import operator_page
from scripts.generated_docs_handlers import handlers_page
from serving.settings import ServingSettings
from worker.settings import WorkerSettings

_PART: Final = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def diagram(table: Mapping[Any, frozenset[Any]]) -> str:
    """Return a Mermaid state diagram; the first state of the table is where everything starts."""
    order: list[StrEnum] = list(table)
    lines = ["stateDiagram-v2", f"    [*] --> {order[0]}"]
    for source, targets in table.items():
        lines += [f"    {source} --> {target}" for target in sorted(targets, key=order.index)]
        lines += [] if targets else [f"    {source} --> [*]"]
    return "\n".join(lines)


def states() -> str:
    """Return the diagrams of job, node and attempt."""
    tables: dict[str, Mapping[Any, frozenset[Any]]]
    tables = {"Job": JOB_TRANSITIONS, "Node": NODE_TRANSITIONS, "Attempt": ATTEMPT_TRANSITIONS}
    return "\n\n".join(f"**{name}**\n\n```mermaid\n{diagram(table)}\n```" for name, table in tables.items())


def access() -> str:
    """Return the table of who sees what."""
    head = "| door | " + " | ".join(Audience) + " |\n|---|" + "---|" * len(Audience)
    rows = (f"| {door} | " + " | ".join(ACCESS_TABLE[audience][door] for audience in Audience) + " |" for door in Door)
    return "\n".join([head, *rows])


def proxying() -> str:
    """Return the table of what the gateway's proxy lets through."""
    lines = ["| target | method | paths |", "|---|---|---|"]
    for target, doors in ALLOWED.items():
        for method in dict.fromkeys(door.method for door in doors):
            paths = ", ".join(f"`/{door.prefix}`" for door in doors if door.method == method)
            lines.append(f"| {target} | {method} | {paths} |")
    return "\n".join(lines)


def versions() -> str:
    """Return the matrix of a version's states and commands; a cell names who may and where it leads."""
    lines = ["| approval | processing | " + " | ".join(Command) + " |", "|---" * (len(Command) + 2) + "|"]
    for deleted, approval, processing in itertools.product((False, True), ApprovalState, ProcessingState):
        cells = [
            _version_cell(command) if is_open(command, approval, processing, deleted=deleted) else ""
            for command in Command
        ]
        lines.append(f"| {approval}{', deleted' if deleted else ''} | {processing} | " + " | ".join(cells) + " |")
    start = [_version_cell(command) if command is Command.SUBMIT else "" for command in Command]
    lines.insert(2, "| *no version* | | " + " | ".join(start) + " |")
    return "\n".join(lines)


def _version_cell(command: Command) -> str:
    rule = RULES[command]
    target = "deleted" if rule.deleted_to else "live again" if rule.deleted_from else rule.approval_to
    marks = ("\\*" if rule.four_eyes else "") + ("!" if rule.needs_reason else "")
    return f"{_letters(rule.roles)}{marks} → {target}"


def assets() -> str:
    """Return the matrix of an asset's states and commands; a cell names who may."""
    lines = ["| clearance | " + " | ".join(AssetCommand) + " |", "|---" * (len(AssetCommand) + 1) + "|"]
    for deleted, clearance in itertools.product((False, True), Clearance):
        cells = [_asset_cell(c) if is_asset_open(c, clearance, deleted=deleted) else "" for c in AssetCommand]
        lines.append(f"| {clearance}{', deleted' if deleted else ''} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _asset_cell(command: AssetCommand) -> str:
    rule = ASSET_RULES[command]
    return _letters(rule.roles) + ("\\*" if rule.four_eyes else "") + ("!" if rule.needs_reason else "")


def _letters(roles: Collection[Role]) -> str:
    return " ".join(role[0].upper() for role in (Role.SUBMITTER, Role.REVIEWER, Role.ADMIN) if role in roles)


def processing() -> str:
    """Return the diagram of one revision's processing."""
    return f"```mermaid\n{diagram(PROCESSING_TRANSITIONS)}\n```"


def settings() -> str:
    """Return a table of settings for what all processes share and for each process."""
    common = ProcessSettings.model_fields.keys() | DatabaseSettings.model_fields.keys()
    parts = [_settings_table("Every process", DatabaseSettings, frozenset())]
    for title, kind in (
        ("Orchestrator", OrchestratorSettings),
        ("Worker", WorkerSettings),
        ("Gateway", GatewaySettings),
        ("Serving", ServingSettings),
        ("Retention (`geodag gc`)", RetentionSettings),
    ):
        parts.append(_settings_table(title, kind, frozenset(common)))
    return "\n\n".join(parts)


def _settings_table(title: str, kind: type[ProcessSettings], without: frozenset[str]) -> str:
    head = f"### {title}\n\n| variable | default | meaning |\n|---|---|---|"
    fields = ((name, field) for name, field in kind.model_fields.items() if name not in without)
    rows = (f"| `{name.upper()}` | {_default(field)} | {_cell(field)} |" for name, field in fields)
    return "\n".join([head, *rows])


def _cell(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "**required**"
    return "" if field.default is None else f"`{field.default}`"


def raster_rules() -> str:
    """Return the rules for rasters, one table for each subject."""
    parts = []
    for subject, rules in by_subject():
        lines = [
            f"### {subject.capitalize()}\n",
            "| rule | code | level | field | what holds | test |",
            "|---" * 6 + "|",
        ]
        for rule in rules:
            test = f"[{rule.test.partition('::')[2]}](../tests/unit/handlers/{rule.test.partition('::')[0]})"
            cells = (f"`{rule.id}`", f"`{rule.code}`", rule.level, rule.field or "", rule.sentence, test)
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "raster_rules": raster_rules,
    "states": states,
    "access": access,
    "proxying": proxying,
    "versions": versions,
    "assets": assets,
    "processing": processing,
    "settings": settings,
}


def workflow_schema() -> str:
    """Return the JSON Schema of workflow files."""
    return json.dumps(author_schema(), indent=1, ensure_ascii=False) + "\n"


FILES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/workflow.schema.json": workflow_schema,
    "docs/handlers.md": handlers_page,
    "docs/operator-api.md": operator_page,
}
PAGES: Final = (
    "docs/architecture.md",
    "docs/lifecycle.md",
    "docs/security.md",
    "docs/configuration.md",
    "docs/raster-rules.md",
)


def updated(page: str) -> str:
    """Return the page with current generated parts.

    Raises:
        ValueError: the page has no generated part, or one that nobody generates.
    """
    names = [found[2] for found in _PART.finditer(page)]
    if not names or not PARTS.keys() >= set(names):
        raise ValueError(f"expected a generated part among {', '.join(PARTS)}, found {names}")
    return _PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}\n{found[3]}", page)


def main() -> int:
    """Rewrite the pages and files that are not current."""
    root = Path(__file__).resolve().parents[1]
    for name in PAGES:
        path = root / name
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in FILES.items():
        (root / name).write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
