-- Where the copy of a public version lies, for the address that its platform is told.

CREATE OR REPLACE VIEW dagapi.versions WITH (security_barrier) AS
SELECT v.asset_id, a.platform_id, v.version_ordinal, v.version_label, v.revision, v.title, v.description, v.tags,
       v.access_level, v.approval_state, v.processing_state, v.reviewed_at, v.rejection_reason, v.content_hash,
       v.blob_size_bytes, v.stac_item_id, v.stac_collection_id, v.report, v.findings, v.error, v.created_at,
       v.updated_at, v.submitted_by, v.external_blob_path
FROM dagapp.asset_versions AS v
JOIN dagapp.geospatial_assets AS a ON a.asset_id = v.asset_id
WHERE v.deleted_at IS NULL AND a.deleted_at IS NULL;
