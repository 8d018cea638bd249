-- Lists that are read page by page, of assets by the platform's own refs too (specification 003 §13.4).
--
-- Functions, because a barrier view is planned by itself: `@>`, which is not leakproof, stays away from the GIN index,
-- and every page would sort the whole list. They hide what the views hide; NULL means any. Each call is planned anew,
-- so that each question gets the index it needs.

CREATE INDEX geospatial_assets_platform_idx ON dagapp.geospatial_assets USING btree (platform_id, created_at, asset_id);
CREATE INDEX geospatial_assets_created_idx ON dagapp.geospatial_assets USING btree (created_at, asset_id);

CREATE FUNCTION dagapi.find_assets(
    platform text, refs jsonb, kind text, published boolean, after_time timestamptz, after_id text, row_limit integer
) RETURNS SETOF dagapi.assets
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE
        'SELECT a.asset_id, a.platform_id, a.platform_refs, a.data_type, a.clearance_state, a.exposure,'
        ' a.latest_approved_version_ordinal, a.created_at, a.updated_at'
        ' FROM dagapp.geospatial_assets AS a WHERE a.deleted_at IS NULL'
        || CASE WHEN platform IS NOT NULL THEN ' AND a.platform_id = $1' ELSE '' END
        || CASE WHEN refs IS NOT NULL THEN ' AND a.platform_refs @> $2' ELSE '' END
        || CASE WHEN kind IS NOT NULL THEN ' AND a.data_type = $3' ELSE '' END
        || CASE WHEN published
                THEN ' AND a.clearance_state <> ''uncleared'' AND a.latest_approved_version_ordinal IS NOT NULL'
                ELSE ' AND EXISTS (SELECT FROM dagapp.asset_versions AS v'
                     ' WHERE v.asset_id = a.asset_id AND v.deleted_at IS NULL)' END
        || CASE WHEN after_time IS NOT NULL THEN ' AND (a.created_at, a.asset_id) < ($4, $5)' ELSE '' END
        || ' ORDER BY a.created_at DESC, a.asset_id DESC LIMIT $6'
    USING platform, refs, kind, after_time, after_id, row_limit;
END
$$;
REVOKE EXECUTE ON FUNCTION dagapi.find_assets(text, jsonb, text, boolean, timestamptz, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION dagapi.find_assets(text, jsonb, text, boolean, timestamptz, text, integer) TO geodag_gateway;

-- The same rows as before, for the function alone: nobody is granted this view.
ALTER VIEW dagapi.reviews RENAME TO review_rows;
ALTER VIEW dagapi.review_rows RESET (security_barrier);
REVOKE ALL ON dagapi.review_rows FROM geodag_gateway;

CREATE FUNCTION dagapi.find_reviews(
    state text, platform text, kind text, due_before timestamptz, after_time timestamptz, after_id text,
    after_ordinal integer, row_limit integer
) RETURNS SETOF dagapi.review_rows
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE
        'SELECT * FROM dagapi.review_rows WHERE approval_state = $1'
        || CASE WHEN platform IS NOT NULL THEN ' AND platform_id = $2' ELSE '' END
        || CASE WHEN kind IS NOT NULL THEN ' AND data_type = $3' ELSE '' END
        || CASE WHEN due_before IS NOT NULL THEN ' AND review_due_at <= $4' ELSE '' END
        || CASE WHEN after_time IS NOT NULL THEN ' AND (processed_at, asset_id, version_ordinal) > ($5, $6, $7)'
                ELSE '' END
        || ' ORDER BY processed_at, asset_id, version_ordinal LIMIT $8'
    USING state, platform, kind, due_before, after_time, after_id, after_ordinal, row_limit;
END
$$;
REVOKE EXECUTE ON FUNCTION
    dagapi.find_reviews(text, text, text, timestamptz, timestamptz, text, integer, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    dagapi.find_reviews(text, text, text, timestamptz, timestamptz, text, integer, integer) TO geodag_gateway;

-- One row tells a partner everything about a request, as before; `stored_state` finds its rows.
CREATE INDEX platform_requests_created_idx ON dagapp.platform_requests USING btree (created_at, request_id);
CREATE INDEX platform_requests_open_idx ON dagapp.platform_requests USING btree (platform_id, created_at) WHERE state = 'queued';

CREATE VIEW dagapi.request_rows AS
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
       r.state AS stored_state
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

CREATE FUNCTION dagapi.find_requests(
    platform text, wanted text, asset text, after_time timestamptz, after_id text, row_limit integer
) RETURNS SETOF dagapi.request_rows
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE
        'SELECT * FROM dagapi.request_rows WHERE true'
        || CASE WHEN platform IS NOT NULL THEN ' AND platform_id = $1' ELSE '' END
        || CASE WHEN wanted IN ('queued', 'processing') THEN ' AND stored_state = ''queued'' AND state = $2'
                WHEN wanted IS NOT NULL THEN ' AND stored_state = $2' ELSE '' END
        || CASE WHEN asset IS NOT NULL THEN ' AND asset_id = $3' ELSE '' END
        || CASE WHEN after_time IS NOT NULL THEN ' AND (created_at, request_id) < ($4, $5)' ELSE '' END
        || ' ORDER BY created_at DESC, request_id DESC LIMIT $6'
    USING platform, wanted, asset, after_time, after_id, row_limit;
END
$$;
REVOKE EXECUTE ON FUNCTION dagapi.find_requests(text, text, text, timestamptz, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION dagapi.find_requests(text, text, text, timestamptz, text, integer) TO geodag_gateway;
