"""Tables of fan-outs: where each stands, and its items."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

from core.models.table import Column, ForeignKey, Table


class FanOut(Table):
    """Where one fan-out stands; counts are of items, `next_child`, `child_count` and `active` of tasks."""

    __table_name__: ClassVar[str] = "dag_fan_outs"
    __primary_key__: ClassVar = ("job_id", "node_id")
    __storage__: ClassVar = "fillfactor=70"
    __foreign_keys__: ClassVar = (ForeignKey(("job_id",), "dag_jobs", ("job_id",), on_delete="CASCADE"),)

    job_id: Annotated[str, Column("varchar(64)")]
    node_id: Annotated[str, Column("varchar(64)")]
    state: str = Field(description="expanding | running | stopping | done")
    item_count: int
    child_count: int
    batch_size: int
    max_concurrency: int = Field(description="Tasks in the window; can be changed while it runs.")
    tolerated: int = Field(description="Items that may fail.")
    next_child: Annotated[int, Column(default="0")] = Field(default=0, description="Number of the next child to make.")
    active: Annotated[int, Column(default="0")] = Field(default=0, description="Children that were made and not ended.")
    succeeded: Annotated[int, Column(default="0")] = 0
    failed: Annotated[int, Column(default="0")] = 0
    skipped: Annotated[int, Column(default="0")] = 0
    failures: Annotated[list[Any], Column("jsonb", default="'[]'::jsonb")] = Field(
        default_factory=list, description="The first 100: {index, error}."
    )
    wake_at: datetime | None = Field(default=None, description="Not later than the next timer of any child.")
    created_at: datetime
    completed_at: datetime | None = None
    first_attempt: Annotated[int, Column(default="0")] = Field(
        default=0, description="Number of the first attempt of each child; above those of an earlier run."
    )


class FanOutItems(Table):
    """500 items of a fan-out, stored once."""

    __table_name__: ClassVar[str] = "dag_fan_out_items"
    __primary_key__: ClassVar = ("job_id", "node_id", "chunk_no")
    __foreign_keys__: ClassVar = (ForeignKey(("job_id",), "dag_jobs", ("job_id",), on_delete="CASCADE"),)

    job_id: Annotated[str, Column("varchar(64)")]
    node_id: Annotated[str, Column("varchar(64)")]
    chunk_no: int = Field(description="Holds the items from 500 * chunk_no on.")
    items: Annotated[list[Any], Column("jsonb")]
