"""DDL text of the stored models: the models are the schema, this renders them, nothing here touches a database.

Names are derived, never invented: `<table>_pkey`, `<table>_<columns>_fkey`, `<table>_<column>_check`,
`<table>_<index>_idx`. A numbered migration carries the rendered text; a test proves that both reach the same catalog.
"""

import types
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from core.models.table import Column, ForeignKey, Index, Table

NAME_LIMIT: Final = 63
"""PostgreSQL cuts longer identifiers silently; here they are an error."""

_SCALARS: Final[dict[Any, str]] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "double precision",
    datetime: "timestamptz",
    Any: "jsonb",
}
_DOCUMENTS: Final = (dict, list, tuple)


class SchemaError(ValueError):
    """A model says something that has no table form."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column as it will be rendered."""

    name: str
    type: str
    nullable: bool
    default: str | None
    identity: bool
    allowed: tuple[str, ...]
    """Values of a StrEnum column, empty for any other."""

    def render(self) -> str:
        """Return the column's line inside CREATE TABLE."""
        parts = [self.name, self.type]
        if self.identity:
            parts.append("GENERATED ALWAYS AS IDENTITY")
        if not self.nullable:
            parts.append("NOT NULL")
        if self.default is not None:
            parts.append(f"DEFAULT {self.default}")
        return " ".join(parts)


def columns(model: type[Table]) -> tuple[ColumnSpec, ...]:
    """Return the columns of a model in the order of its fields."""
    return tuple(_column(model, name, field) for name, field in model.model_fields.items())


def render_table(model: type[Table]) -> tuple[str, ...]:
    """Return the statements that create one table with its constraints, indexes and default partition."""
    return (_create_table(model), *_default_partition(model), *(_create_index(model, i) for i in model.__indexes__))


def render_tables(models: Sequence[type[Table]]) -> tuple[str, ...]:
    """Return the statements that create all tables, in the given order; a table comes after those it refers to."""
    seen: set[str] = set()
    statements: list[str] = []
    for model in models:
        for key in model.__foreign_keys__:
            if key.table not in seen and key.table != model.__table_name__:
                raise SchemaError(f"{model.__table_name__} refers to {key.table}, which comes later or nowhere")
        seen.add(model.__table_name__)
        statements.extend(render_table(model))
    return tuple(statements)


def ddl(models: Sequence[type[Table]]) -> str:
    """Return the whole DDL as one text, each statement ended by a semicolon."""
    return "\n\n".join(f"{statement};" for statement in render_tables(models)) + "\n"


def qualified(model: type[Table]) -> str:
    """Return `schema.table` of a model."""
    return f"{model.__schema_name__}.{model.__table_name__}"


def sql_type(annotation: Any) -> str:
    """Return the SQL type of a Python type without its NULL part."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin = get_origin(annotation) or annotation
    if origin in _DOCUMENTS:
        return "jsonb"
    if isinstance(origin, type) and issubclass(origin, StrEnum):
        return "text"
    raise SchemaError(f"no SQL type for {annotation!r}")


def _column(model: type[Table], name: str, field: FieldInfo) -> ColumnSpec:
    facts = next((m for m in field.metadata if isinstance(m, Column)), Column())
    annotation, nullable = _without_none(field.annotation)
    try:
        mapped = facts.type or sql_type(annotation)
    except SchemaError as error:
        raise SchemaError(f"{model.__table_name__}.{name}: {error}") from error
    return ColumnSpec(name, mapped, nullable, facts.default, facts.identity, _members(annotation))


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return a type without its `| None`, and whether it had one."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    rest = [a for a in get_args(annotation) if a is not types.NoneType]
    if len(rest) != 1:
        raise SchemaError(f"a column holds one type, not {annotation!r}")
    return rest[0], len(rest) < len(get_args(annotation))


def _members(annotation: Any) -> tuple[str, ...]:
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return tuple(str(member) for member in annotation)
    return ()


def _create_table(model: type[Table]) -> str:
    specs = columns(model)
    lines = [spec.render() for spec in specs]
    lines += [_primary_key(model), *(_foreign_key(model, key) for key in model.__foreign_keys__)]
    lines += [_enum_check(model, spec) for spec in specs if spec.allowed]
    lines += [
        f"CONSTRAINT {_name(model, f'check_{number}')} CHECK ({check})"
        for number, check in enumerate(model.__checks__, start=1)
    ]
    body = ",\n".join(f"    {line}" for line in lines)
    partition = f"\nPARTITION BY {model.__partition_by__}" if model.__partition_by__ else ""
    storage = f"\nWITH ({model.__storage__})" if model.__storage__ else ""
    return f"CREATE TABLE {qualified(model)} (\n{body}\n){partition}{storage}"


def _primary_key(model: type[Table]) -> str:
    return f"CONSTRAINT {_name(model, 'pkey')} PRIMARY KEY ({', '.join(model.__primary_key__)})"


def _foreign_key(model: type[Table], key: ForeignKey) -> str:
    name = _name(model, f"{'_'.join(key.columns)}_fkey")
    target = f"{model.__schema_name__}.{key.table} ({', '.join(key.target)})"
    action = f" ON DELETE {key.on_delete}" if key.on_delete != "NO ACTION" else ""
    return f"CONSTRAINT {name} FOREIGN KEY ({', '.join(key.columns)}) REFERENCES {target}{action}"


def _enum_check(model: type[Table], spec: ColumnSpec) -> str:
    values = ", ".join("'" + value.replace("'", "''") + "'" for value in spec.allowed)
    return f"CONSTRAINT {_name(model, f'{spec.name}_check')} CHECK ({spec.name} IN ({values}))"


def _default_partition(model: type[Table]) -> tuple[str, ...]:
    if not model.__partition_by__:
        return ()
    return (f"CREATE TABLE {qualified(model)}_default PARTITION OF {qualified(model)} DEFAULT",)


def _create_index(model: type[Table], index: Index) -> str:
    unique = "UNIQUE " if index.unique else ""
    where = f" WHERE {index.where}" if index.where else ""
    name = _name(model, f"{index.name}_idx")
    return f"CREATE {unique}INDEX {name} ON {qualified(model)} USING {index.using} ({', '.join(index.columns)}){where}"


def _name(model: type[Table], suffix: str) -> str:
    name = f"{model.__table_name__}_{suffix}"
    if len(name) > NAME_LIMIT:
        raise SchemaError(f"{name} is longer than {NAME_LIMIT} characters")
    return name
