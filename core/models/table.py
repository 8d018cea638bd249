"""What a Pydantic model says about its table; `core.schema` renders it, nothing here touches a database."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict

from core.unchecked import unchecked

Row = TypeVar("Row", bound="Table")


@dataclass(frozen=True, slots=True)
class Column:
    """SQL facts of one field that its Python type does not tell; used in `Annotated[...]`.

    `type` overrides the mapped type, `default` is a SQL expression, `identity` makes a generated key.
    """

    type: str | None = None
    default: str | None = None
    identity: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """One index: a name suffix, its columns or expressions, and what narrows it."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    where: str | None = None
    using: str = "btree"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A reference of columns to a table of the same schema."""

    columns: tuple[str, ...]
    table: str
    target: tuple[str, ...]
    on_delete: str = "NO ACTION"


class Table(BaseModel):
    """Base of every stored model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    __schema_name__: ClassVar[str] = "dagapp"
    __table_name__: ClassVar[str]
    __primary_key__: ClassVar[tuple[str, ...]]
    __indexes__: ClassVar[tuple[Index, ...]] = ()
    __foreign_keys__: ClassVar[tuple[ForeignKey, ...]] = ()
    __checks__: ClassVar[tuple[str, ...]] = ()
    __partition_by__: ClassVar[str | None] = None
    __storage__: ClassVar[str | None] = None
    """Storage parameters, for example `fillfactor=70`."""

    @classmethod
    def of_row(cls, values: dict[str, Any]) -> Self:
        """Return a row of values that were checked, as a table's columns do; only names of statuses are looked up.

        Columns that are left out have their defaults, but for those whose default is made anew for each row.
        """
        for name, members in _enums_of(cls):
            if (value := values.get(name)) is not None:
                values[name] = members[value]
        return unchecked(cls, {**_empty_row_of(cls), **values}, set(values))

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Self:
        """Return a row that the server has made a JSON object of, where moments are text."""
        for name in _moments_of(cls):
            if (value := document.get(name)) is not None:
                document[name] = datetime.fromisoformat(value)
        return cls.of_row(document)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values, unchecked as ever; at a third of what the base class takes."""
        if deep:
            return super().model_copy(update=update, deep=True)
        changed, known = update or {}, self.__pydantic_fields_set__
        return unchecked(
            type(self), {**self.__dict__, **changed}, known if known.issuperset(changed) else known.union(changed)
        )


def reader_of(table: type[Row], names: Sequence[str]) -> Callable[[Sequence[Any]], Row]:
    """Return what makes rows, as `Table.of_row` does, of values in the order of these columns."""
    known = set(names)
    unread = {name: value for name, value in _empty_row_of(table).items() if name not in known}
    enums = [(name, members) for name, members in _enums_of(table) if name in known]

    def read(values: Sequence[Any]) -> Row:
        row = dict(zip(names, values, strict=True))
        row.update(unread)
        for name, members in enums:
            if (value := row[name]) is not None:
                row[name] = members[value]
        return unchecked(table, row, known)

    return read


@lru_cache
def _enums_of(cls: type[Table]) -> tuple[tuple[str, Mapping[Any, Enum]], ...]:
    """Return the fields that hold members of an enum, with the members by value."""
    found = []
    for name, field in cls.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Enum):
                found.append((name, {member.value: member for member in kind}))
    return tuple(found)


@lru_cache
def _moments_of(cls: type[Table]) -> tuple[str, ...]:
    """Return the fields that hold moments."""
    return tuple(
        name for name, field in cls.model_fields.items() if datetime in (field.annotation, *get_args(field.annotation))
    )


@lru_cache
def _empty_row_of(cls: type[Table]) -> Mapping[str, Any]:
    """Return all fields in their order, with the values of columns that a statement may leave out."""
    return {name: None if field.is_required() else field.default for name, field in cls.model_fields.items()}
