-- Versions that are stored as many tiles, and the workflow that makes them.

ALTER TABLE dagapp.asset_versions ADD COLUMN tiles_path text;

CREATE OR REPLACE VIEW dagserve.routes WITH (security_barrier) AS
SELECT v.asset_id, v.version_ordinal, a.platform_id, a.data_type, a.clearance_state, a.exposure,
       a.latest_approved_version_ordinal, (a.deleted_at IS NOT NULL) AS asset_deleted,
       (v.deleted_at IS NOT NULL) AS version_deleted, v.approval_state, v.processing_state, v.revision, v.title,
       v.description, v.blob_path, v.blob_sha256, v.blob_size_bytes, v.content_hash, v.render, v.stac_item_id,
       v.stac_collection_id, v.stac_item, greatest(v.updated_at, a.updated_at) AS updated_at, v.tiles_path
FROM dagapp.asset_versions AS v
JOIN dagapp.geospatial_assets AS a ON a.asset_id = v.asset_id;

UPDATE dagapp.platforms SET allowed_workflows = allowed_workflows || '["raster_tiled"]'
WHERE allowed_workflows @> '["raster_ingest"]';
