"""Writes what a command did: states, audit and catalogue, in the transaction that holds the asset's lock.

The catalogue comes last, because its writer's lock is one for the whole platform.
"""

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection

from core.access import Audience, audiences
from core.dossier import Act, Dossier, Outcome
from core.errors import DataError, GeodagError, NotFound
from core.identity import Caller
from core.lifecycle import AssetState
from core.ports import BlobRepository
from core.stac import collection_document, tile_items
from repositories import pgstac
from repositories.assets import AssetRepository, CatalogueEntry
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.platforms import PlatformRepository
from repositories.tile_lists import read_tiles
from services.external import ExternalJobs

Connection = AsyncConnection[Any]
Json = dict[str, Any]
Entries = Mapping[int, CatalogueEntry]

_DECIDED = frozenset({"approved", "rejected", "revoked", "unpublished"})
"""Acts in which a reviewer decided about a version."""


class CatalogueEntryMissing(GeodagError):
    """A completed version has no STAC document, or a wrong one; it can not be published."""

    code = "CATALOGUE_ENTRY_MISSING"


async def open_dossier(conn: Connection, asset_id: str, caller: Caller) -> tuple[Dossier, str]:
    """Lock an asset and its versions and return them with the asset's data type.

    Raises:
        NotFound: there is no such asset, or it is none of the caller's: both are told in the same words, before
            anything is said about its versions.
    """
    assets = AssetRepository(conn)
    asset = await assets.lock(asset_id)
    if asset is None or audiences(caller, asset.platform_id) == {Audience.ANONYMOUS}:
        raise NotFound("there is no such asset", field="asset_id", value=asset_id)
    return Dossier(AssetState.of(asset), tuple(await assets.lock_versions(asset_id))), asset.data_type


async def settle(
    conn: Connection,
    caller: Caller,
    outcome: Outcome,
    data_type: str,
    blobs: BlobRepository | None = None,
    external: ExternalJobs | None = None,
) -> None:
    """Write an outcome; an outcome without acts changes nothing.

    Args:
        conn: The transaction that holds the asset's lock.
        caller: Who decided.
        outcome: What becomes of the asset.
        data_type: Of the asset.
        blobs: Where lists of tiles lie.
        external: Starts what the outcome needs in the external zone; None where nothing leaves.

    Raises:
        CatalogueEntryMissing: a version that enters the catalogue has no document for it.
        CatalogueMismatch: the catalogue reads back different.
    """
    assets, asset = AssetRepository(conn), outcome.after.asset
    decided = {act.version_ordinal for act in outcome.acts if act.action in _DECIDED}
    for version in outcome.changed_versions():
        await assets.store_version(asset.asset_id, version, caller.subject, decided=version.version_ordinal in decided)
    if asset != outcome.before.asset:
        await assets.store_asset(asset, caller.subject)
    touched = {v.version_ordinal for v in outcome.changed_versions()}
    entries = await assets.catalogue_entries(
        asset.asset_id, sorted({*touched, *outcome.entering(), *outcome.leaving()})
    )
    for act in outcome.acts:
        await AuditRepository(conn).add(_audit_entry(caller, outcome, act, entries))
    tiles = {n: await _tiles_of(entries[n], blobs) for n in outcome.entering()}
    if external is not None:
        await external.follow(conn, outcome)
    await _catalogue(conn, outcome, entries, data_type, tiles)


async def _tiles_of(entry: CatalogueEntry, blobs: BlobRepository | None) -> list[Json]:
    """Return the items of a version's tiles, before the catalogue's one writer is waited for."""
    if entry.tiles_path is None or entry.stac_item is None:
        return []
    if blobs is None:
        raise CatalogueEntryMissing(f"nobody here reads the tiles of version {entry.version_ordinal}")
    try:
        return list(tile_items(entry.stac_item, await read_tiles(blobs, entry.tiles_path)))
    except (DataError, LookupError) as error:
        raise CatalogueEntryMissing(f"version {entry.version_ordinal}: {error}") from error


def _audit_entry(caller: Caller, outcome: Outcome, act: Act, entries: Entries) -> NewAuditEntry:
    entry = None if act.version_ordinal is None else entries.get(act.version_ordinal)
    return NewAuditEntry(
        asset_id=outcome.after.asset.asset_id,
        version_ordinal=act.version_ordinal,
        action=act.action,
        actor=caller.subject,
        actor_role=str(outcome.role),
        reason=act.reason,
        before=act.before,
        after=act.after,
        request_id=None if entry is None else entry.current_request_id,
    )


async def _catalogue(
    conn: Connection, outcome: Outcome, entries: Entries, data_type: str, tiles: Mapping[int, list[Json]]
) -> None:
    """Write the documents of versions that enter the catalogue and delete those of versions that leave it."""
    asset = outcome.after.asset
    for ordinal in outcome.leaving():
        entry = entries[ordinal]
        if entry.stac_item_id is not None and entry.stac_collection_id is not None:
            await pgstac.delete_item(conn, entry.stac_collection_id, entry.stac_item_id)
            if entry.tiles_path is not None:
                await pgstac.delete_tiles(conn, entry.stac_collection_id, entry.stac_item_id)
    for ordinal in outcome.entering():
        entry = entries[ordinal]
        if entry.stac_item is None or entry.stac_collection_id is None:
            raise CatalogueEntryMissing(f"version {ordinal} of {asset} has no STAC item")
        if entry.stac_item.get("collection") != entry.stac_collection_id:
            raise CatalogueEntryMissing(f"the STAC item of version {ordinal} of {asset} names another collection")
        # A collection that was lost is made again.
        platform = await PlatformRepository(conn).get(asset.platform_id)
        title = f"{platform.display_name if platform else asset.platform_id}: {data_type}"
        await pgstac.ensure_collection(conn, collection_document(entry.stac_collection_id, title))
        await pgstac.write_item(conn, entry.stac_item)
        await pgstac.write_items(conn, tiles[ordinal])
