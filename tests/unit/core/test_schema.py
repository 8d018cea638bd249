"""The renderer says in SQL what a model says in Python, and refuses what has no table form."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import pytest

from core.models.business import BUSINESS_TABLES
from core.models.engine import ENGINE_TABLES, NodeState
from core.models.table import Column, ForeignKey, Index, Table
from core.schema import SchemaError, columns, ddl, render_table, render_tables, sql_type
from core.statuses import NodeStatus


class Colour(StrEnum):
    RED = "red"
    SEA = "sea's"


class Parent(Table):
    __table_name__: ClassVar[str] = "parents"
    __primary_key__: ClassVar = ("parent_id",)

    parent_id: Annotated[int, Column("bigint", identity=True)]


class Child(Table):
    __table_name__: ClassVar[str] = "children"
    __primary_key__: ClassVar = ("child_id",)
    __foreign_keys__: ClassVar = (ForeignKey(("parent_id",), "parents", ("parent_id",), on_delete="CASCADE"),)
    __indexes__: ClassVar = (Index("colour", ("colour", "lower(name)"), unique=True, where="name IS NOT NULL"),)
    __checks__: ClassVar = ("score >= 0",)
    __storage__: ClassVar = "fillfactor=70"

    child_id: Annotated[str, Column("varchar(32)")]
    parent_id: Annotated[int, Column("bigint")]
    colour: Annotated[Colour, Column(default="'red'")] = Colour.RED
    other: Colour | None = None
    name: str | None = None
    score: float
    seen_at: datetime
    tags: list[str]


class Log(Table):
    __table_name__: ClassVar[str] = "logs"
    __primary_key__: ClassVar = ("at",)
    __partition_by__: ClassVar = "RANGE (at)"

    at: datetime


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, "text"),
        (int, "integer"),
        (bool, "boolean"),
        (float, "double precision"),
        (datetime, "timestamptz"),
        (Any, "jsonb"),
        (dict[str, Any], "jsonb"),
        (list[str], "jsonb"),
        (tuple[str, ...], "jsonb"),
        (Colour, "text"),
    ],
)
def test_each_python_type_has_its_sql_type(annotation: Any, expected: str) -> None:
    assert sql_type(annotation) == expected


def test_a_table_is_rendered_with_keys_checks_storage_and_indexes() -> None:
    assert render_table(Child) == (
        (
            "CREATE TABLE dagapp.children (\n"
            "    child_id varchar(32) NOT NULL,\n"
            "    parent_id bigint NOT NULL,\n"
            "    colour text NOT NULL DEFAULT 'red',\n"
            "    other text,\n"
            "    name text,\n"
            "    score double precision NOT NULL,\n"
            "    seen_at timestamptz NOT NULL,\n"
            "    tags jsonb NOT NULL,\n"
            "    CONSTRAINT children_pkey PRIMARY KEY (child_id),\n"
            "    CONSTRAINT children_parent_id_fkey FOREIGN KEY (parent_id)"
            " REFERENCES dagapp.parents (parent_id) ON DELETE CASCADE,\n"
            "    CONSTRAINT children_colour_check CHECK (colour IN ('red', 'sea''s')),\n"
            "    CONSTRAINT children_other_check CHECK (other IN ('red', 'sea''s')),\n"
            "    CONSTRAINT children_check_1 CHECK (score >= 0)\n"
            ")\n"
            "WITH (fillfactor=70)"
        ),
        (
            "CREATE UNIQUE INDEX children_colour_idx ON dagapp.children USING btree (colour, lower(name))"
            " WHERE name IS NOT NULL"
        ),
    )


def test_an_identity_column_is_generated() -> None:
    assert "parent_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL" in render_table(Parent)[0]


def test_a_partitioned_table_gets_a_default_partition() -> None:
    table, default = render_table(Log)
    assert table.endswith("PARTITION BY RANGE (at)")
    assert default == "CREATE TABLE dagapp.logs_default PARTITION OF dagapp.logs DEFAULT"


def test_only_an_optional_field_is_nullable_whatever_its_default() -> None:
    nullable = {spec.name: spec.nullable for spec in columns(Child)}
    assert [name for name, value in nullable.items() if value] == ["other", "name"]


def test_a_reference_to_a_later_table_is_refused() -> None:
    assert render_tables((Parent, Child))
    with pytest.raises(SchemaError, match="children refers to parents"):
        render_tables((Child, Parent))


@pytest.mark.parametrize("annotation", [bytes, int | str, int | str | None, object])
def test_a_type_without_a_column_form_is_refused_with_the_field(annotation: Any) -> None:
    model = type(
        "Odd",
        (Table,),
        {"__annotations__": {"odd": annotation}, "__table_name__": "odds", "__primary_key__": ("odd",),
         "model_config": {"arbitrary_types_allowed": True}},
    )  # fmt: skip
    with pytest.raises(SchemaError, match=r"odds\.odd|one type"):
        render_table(model)


def test_a_name_that_postgresql_would_cut_is_refused() -> None:
    long = type("Long", (Parent,), {"__table_name__": "t" * 60})
    with pytest.raises(SchemaError, match="longer than 63"):
        render_table(long)


def test_the_ddl_of_all_models_has_one_table_per_model_and_only_the_one_clock() -> None:
    text = ddl((*ENGINE_TABLES, *BUSINESS_TABLES))
    assert text.count("CREATE TABLE") == len(ENGINE_TABLES) + len(BUSINESS_TABLES) + 1
    assert "now()" not in text.lower()
    assert "current_timestamp" not in text.lower()


def test_rendering_is_the_same_every_time() -> None:
    assert ddl(ENGINE_TABLES) == ddl(ENGINE_TABLES)


def test_a_row_of_the_table_is_what_its_model_makes_of_it() -> None:
    values = {"job_id": "j", "node_id": "n", "status": "DISPATCHED", "skip_reason": None, "output": {"a": [None]}}
    row, made = NodeState.of_row(dict(values)), NodeState.model_validate(values)
    assert (row, row.model_dump_json()) == (made, made.model_dump_json())
    assert row.status is NodeStatus.DISPATCHED
    copied = row.model_copy(update={"status": NodeStatus.RUNNING})
    assert (copied.status, copied.model_fields_set, row.status) == (
        NodeStatus.RUNNING,
        {*values},
        NodeStatus.DISPATCHED,
    )
    deep = row.model_copy(deep=True)
    assert deep == row
    assert deep.output is not row.output
