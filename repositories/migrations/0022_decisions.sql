-- What was decided about each version, for whoever decides next; and who submitted what, for next actions that tell
-- nobody to approve his own work.

CREATE VIEW dagapi.decisions WITH (security_barrier) AS
SELECT d.audit_id, d.asset_id, a.platform_id, d.version_ordinal, r.revision, d.action, d.actor, d.actor_role, d.reason,
       d.created_at
FROM dagapp.asset_audit AS d
JOIN dagapp.asset_versions AS v
  ON v.asset_id = d.asset_id AND v.version_ordinal = d.version_ordinal AND v.deleted_at IS NULL
JOIN dagapp.geospatial_assets AS a ON a.asset_id = d.asset_id AND a.deleted_at IS NULL
LEFT JOIN dagapp.platform_requests AS r ON r.request_id = d.request_id
WHERE d.action IN ('approved', 'rejected', 'revoked', 'unpublished', 'superseded', 'deleted', 'restored');
GRANT SELECT ON dagapi.decisions TO geodag_gateway;

CREATE OR REPLACE VIEW dagapi.versions WITH (security_barrier) AS
SELECT v.asset_id, a.platform_id, v.version_ordinal, v.version_label, v.revision, v.title, v.description, v.tags,
       v.access_level, v.approval_state, v.processing_state, v.reviewed_at, v.rejection_reason, v.content_hash,
       v.blob_size_bytes, v.stac_item_id, v.stac_collection_id, v.report, v.findings, v.error, v.created_at,
       v.updated_at, v.submitted_by
FROM dagapp.asset_versions AS v
JOIN dagapp.geospatial_assets AS a ON a.asset_id = v.asset_id
WHERE v.deleted_at IS NULL AND a.deleted_at IS NULL;

CREATE OR REPLACE VIEW dagapi.requests WITH (security_barrier) AS
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
       (a.deleted_at IS NOT NULL OR v.deleted_at IS NOT NULL) AS deleted,
       v.submitted_by
FROM dagapp.platform_requests AS r
JOIN dagapp.geospatial_assets AS a ON a.asset_id = r.asset_id
JOIN dagapp.asset_versions AS v ON v.asset_id = r.asset_id AND v.version_ordinal = r.version_ordinal
CROSS JOIN LATERAL (
    SELECT count(*) AS total,
           count(*) FILTER (WHERE n.status IN ('COMPLETED', 'SKIPPED')) AS ended,
           coalesce(bool_or(n.started_at IS NOT NULL AND n.task_id IS NOT NULL), false) AS started
    FROM dagapp.platform_request_jobs AS j
    JOIN dagapp.dag_node_states AS n ON n.job_id = j.job_id
    WHERE j.request_id = r.request_id
) AS p;

CREATE OR REPLACE VIEW dagapi.request_rows AS
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
       (a.deleted_at IS NOT NULL OR v.deleted_at IS NOT NULL) AS deleted,
       r.state AS stored_state,
       v.submitted_by
FROM dagapp.platform_requests AS r
JOIN dagapp.geospatial_assets AS a ON a.asset_id = r.asset_id
JOIN dagapp.asset_versions AS v ON v.asset_id = r.asset_id AND v.version_ordinal = r.version_ordinal
CROSS JOIN LATERAL (
    SELECT count(*) AS total,
           count(*) FILTER (WHERE n.status IN ('COMPLETED', 'SKIPPED')) AS ended,
           coalesce(bool_or(n.started_at IS NOT NULL AND n.task_id IS NOT NULL), false) AS started
    FROM dagapp.platform_request_jobs AS j
    JOIN dagapp.dag_node_states AS n ON n.job_id = j.job_id
    WHERE j.request_id = r.request_id
) AS p;
