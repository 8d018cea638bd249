-- What the gateway and serving may read. Views run with geodag_owner's rights; `security_barrier` keeps a caller's
-- functions from seeing rows the view hides. No job id, no node, no blob path and no reviewer leaves through dagapi.

CREATE VIEW dagapi.platforms WITH (security_barrier) AS
SELECT platform_id, display_name, required_refs, optional_refs, version_ref, is_active
FROM dagapp.platforms;

CREATE VIEW dagapi.assets WITH (security_barrier) AS
SELECT asset_id, platform_id, platform_refs, data_type, clearance_state, exposure, latest_approved_version_ordinal,
       created_at, updated_at
FROM dagapp.geospatial_assets
WHERE deleted_at IS NULL;

CREATE VIEW dagapi.versions WITH (security_barrier) AS
SELECT v.asset_id, a.platform_id, v.version_ordinal, v.version_label, v.revision, v.title, v.description, v.tags,
       v.access_level, v.approval_state, v.processing_state, v.reviewed_at, v.rejection_reason, v.content_hash,
       v.blob_size_bytes, v.stac_item_id, v.stac_collection_id, v.report, v.findings, v.error, v.created_at,
       v.updated_at
FROM dagapp.asset_versions AS v
JOIN dagapp.geospatial_assets AS a ON a.asset_id = v.asset_id
WHERE v.deleted_at IS NULL AND a.deleted_at IS NULL;

-- One row tells a partner everything about a request. Review and reason belong to the revision that was asked for.
CREATE VIEW dagapi.requests WITH (security_barrier) AS
SELECT r.request_id, r.platform_id, r.asset_id, r.version_ordinal, r.revision,
       CASE WHEN r.state = 'queued' AND p.started THEN 'processing' ELSE r.state END AS state,
       r.progress || jsonb_build_object('current', p.ended, 'total', p.total) AS progress,
       r.errors, r.warnings, r.created_at, r.updated_at,
       v.version_label, v.processing_state,
       CASE WHEN v.revision = r.revision THEN v.approval_state END AS review,
       CASE WHEN v.revision = r.revision THEN v.rejection_reason END AS reason,
       v.revision AS current_revision,
       v.updated_at AS version_updated_at,
       a.data_type, a.clearance_state, a.exposure, a.latest_approved_version_ordinal,
       a.updated_at AS asset_updated_at,
       (a.deleted_at IS NOT NULL OR v.deleted_at IS NOT NULL) AS deleted
FROM dagapp.platform_requests AS r
JOIN dagapp.geospatial_assets AS a ON a.asset_id = r.asset_id
JOIN dagapp.asset_versions AS v ON v.asset_id = r.asset_id AND v.version_ordinal = r.version_ordinal
-- Progress is counted from the nodes when somebody asks, so running costs no write here; no node's name leaves.
CROSS JOIN LATERAL (
    SELECT count(*) AS total,
           count(*) FILTER (WHERE n.status IN ('COMPLETED', 'SKIPPED')) AS ended,
           coalesce(bool_or(n.started_at IS NOT NULL AND n.task_id IS NOT NULL), false) AS started
    FROM dagapp.platform_request_jobs AS j
    JOIN dagapp.dag_node_states AS n ON n.job_id = j.job_id
    WHERE j.request_id = r.request_id
) AS p;

-- One row per version: all that core.access needs to decide and serving needs to open the file.
CREATE VIEW dagserve.routes WITH (security_barrier) AS
SELECT v.asset_id, v.version_ordinal, a.platform_id, a.data_type, a.clearance_state, a.exposure,
       a.latest_approved_version_ordinal, (a.deleted_at IS NOT NULL) AS asset_deleted,
       (v.deleted_at IS NOT NULL) AS version_deleted, v.approval_state, v.processing_state, v.revision, v.title,
       v.description, v.blob_path, v.blob_sha256, v.blob_size_bytes, v.content_hash, v.render, v.stac_item_id,
       v.stac_collection_id, v.stac_item, greatest(v.updated_at, a.updated_at) AS updated_at
FROM dagapp.asset_versions AS v
JOIN dagapp.geospatial_assets AS a ON a.asset_id = v.asset_id;
