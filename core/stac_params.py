"""Params and outputs of the handlers that write collections and items of STAC."""

from typing import Any

from pydantic import Field

from core.handler_models import Output, Params, RasterOptions


class EnsureCollectionParams(Params):
    collection_id: str
    title: str
    description: str = ""


class EnsureCollectionOutput(Output):
    collection_id: str
    created: bool


class RegisterItemParams(Params):
    """A COG with its facts, or the tiles of a large raster with their grid."""

    cog: str | None = Field(default=None, description="Blob path of the COG; staged: this is the read-back.")
    cog_facts: dict[str, Any] | None = Field(default=None, description="The whole output of raster.create_cog.")
    tiles: list[dict[str, Any]] | None = Field(default=None, description="Outputs of raster.process_tile.")
    grid: dict[str, Any] | None = Field(default=None, description="`grid` of raster.generate_tiling_scheme.")
    raster: dict[str, Any] | None = Field(default=None, description="`raster` of raster.validate; tiles need it.")
    collection: dict[str, Any] | None = Field(default=None, description="Output of raster.check_collection, for files.")
    output_prefix: str | None = Field(default=None, description="Where the overview of tiles goes.")
    collection_id: str
    item_id: str
    title: str
    description: str | None = None
    href: str = Field(description="Unsigned URL of the download door for this version.")
    version_label: str
    properties: dict[str, Any] = Field(default={}, description="platform:* traceability, lineage.")
    options: RasterOptions = RasterOptions()


class RegisterItemOutput(Output):
    stac_item_id: str
    stac_collection_id: str
    stac_item: dict[str, Any]
    blob_path: str | None = Field(description="The COG, or the overview of the tiles.")
    sha256: str | None
    size_bytes: int | None
    render: dict[str, Any] | None
    report: dict[str, Any] | None
    tiles_path: str | None = Field(default=None, description="List of the tiles, with their places and files.")


class ItemToRegister(Params):
    """One COG of a batch; the batch says the rest."""

    cog: str = Field(description="Blob path of the COG; staged: this is the read-back.")
    cog_facts: dict[str, Any] = Field(description="The whole output of raster.create_cog.")
    item_id: str
    title: str
    description: str | None = None
    href: str = Field(description="Unsigned URL of the download door for this version.")
    options: RasterOptions | None = Field(default=None, description="Instead of those of the batch.")


class RegisterItemsParams(Params):
    """Several COGs of one collection."""

    items: list[ItemToRegister] = Field(min_length=1, max_length=300)
    collection_id: str
    version_label: str
    properties: dict[str, Any] = Field(default={}, description="platform:* traceability, lineage.")
    options: RasterOptions = RasterOptions()


class RegisterItemsOutput(Output):
    stac_collection_id: str
    stac_item_ids: list[str]
    stac_items: list[dict[str, Any]] = Field(description="In the order of the params.")
