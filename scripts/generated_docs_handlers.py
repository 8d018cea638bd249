"""The page of handlers, docs/handlers.md, as `core/handlers_catalog.py` and its models say."""

from collections.abc import Iterable, Iterator

from core.handlers_catalog import CATALOG, HandlerSpec
from core.model_guide import FieldLine, Guide, guides_of

_HEAD = """\
# Handlers

What the tasks of a workflow can do. `python -m scripts.generated_docs` writes this page from
`core/handlers_catalog.py`; `geodag workflow handlers` and `geodag workflow handlers NAME` print the same. How a task
names its handler and params: [workflow-language.md](workflow-language.md#tasks).

Params are checked when the file loads and, with the values of their templates, when the node runs: other names are
errors, and nothing is coerced. Outputs are what `nodes.ID.output` has. `queue` and `timeout_seconds` of a node win over
those here. A *staged* param is a blob path `container/name`, of which the handler gets a local copy.
"""


def handlers_page() -> str:
    """Return the whole page."""
    lines = [_HEAD, "| handler | does | queue | runs as | timeout |", "|---" * 5 + "|"]
    lines += [
        f"| [`{one.name}`](#{one.name.replace('.', '')}) | {one.description} | {one.queue} | {one.mode} "
        f"| {one.timeout_seconds:g} s |"
        for one in CATALOG.values()
    ]
    objects: dict[str, Guide] = {}
    for spec in CATALOG.values():
        lines += ["", *_section(spec, objects)]
    lines += ["", "## Objects"]
    for _, guide in sorted(objects.items()):
        lines += ["", f"### {guide.name}", "", guide.summary, "", *table(guide.fields)]
    return "\n".join(lines) + "\n"


def _section(spec: HandlerSpec, objects: dict[str, Guide]) -> Iterator[str]:
    params, *inside = guides_of(spec.params)
    output, *within = guides_of(spec.output, "serialization")
    objects |= {guide.name: guide for guide in (*inside, *within)}
    yield from (f"## {spec.name}", "", spec.description)
    if notes := _notes(spec):
        yield from ("", *notes)
    yield from ("", *_half("Params", params), "", *_half("Output", output))


def _notes(spec: HandlerSpec) -> list[str]:
    notes = []
    if spec.staged:
        beside = ", with the small files beside it" if spec.sidecars else ""
        notes.append(f"Staged: {', '.join(f'`{name}`' for name in spec.staged)}{beside}.")
    if spec.fetches:
        notes.append("Uses the credential of its job's source.")
    if spec.database:
        notes.append("Writes to the catalogue.")
    if spec.reusable:
        notes.append("Equal params give equal files, which are taken again.")
    return [" ".join(notes)] if notes else []


def _half(title: str, guide: Guide) -> Iterator[str]:
    if not guide.fields:
        yield f"**{title}**: " + ("whatever it is given." if guide.others else "none.")
        return
    yield from (f"**{title}**" + (", and whatever else it is given" if guide.others else ""), "")
    yield from table(guide.fields, defaults=title == "Params")


def table(fields: Iterable[FieldLine], *, defaults: bool = True) -> Iterator[str]:
    """Yield the lines of a table of fields; of what is only read, nobody asks for defaults."""
    yield "| name | type | default | meaning |" if defaults else "| name | type | meaning |"
    yield "|---" * (4 if defaults else 3) + "|"
    for one in fields:
        default = one.default if one.default in {"", "required"} else f"`{one.default}`"
        cells = (f"`{one.name}`", one.type, *((default,) if defaults else ()), one.meaning)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
