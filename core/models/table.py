"""What a Pydantic model says about its table; `core.schema` renders it, nothing here touches a database."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


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
