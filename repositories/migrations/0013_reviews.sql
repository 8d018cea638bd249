-- Reviewers: what waits for them and since when, what they say about it; an audit that can be asked.

ALTER TABLE dagapp.platforms ADD COLUMN review_days integer NOT NULL DEFAULT 14;

ALTER TABLE dagapp.asset_versions
    ADD COLUMN processed_at timestamptz,
    ADD COLUMN review_due_at timestamptz,
    ADD COLUMN reminded_at timestamptz;
UPDATE dagapp.asset_versions SET processed_at = updated_at, review_due_at = updated_at + make_interval(days => 14)
WHERE processing_state = 'completed';
CREATE INDEX asset_versions_inbox_idx ON dagapp.asset_versions USING btree (approval_state, processed_at, asset_id, version_ordinal) WHERE processed_at IS NOT NULL AND deleted_at IS NULL;

CREATE TABLE dagapp.version_comments (
    comment_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    asset_id varchar(32) NOT NULL,
    version_ordinal integer NOT NULL,
    revision integer NOT NULL,
    author text NOT NULL,
    author_role text NOT NULL,
    text text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT version_comments_pkey PRIMARY KEY (comment_id),
    CONSTRAINT version_comments_asset_id_version_ordinal_fkey FOREIGN KEY (asset_id, version_ordinal) REFERENCES dagapp.asset_versions (asset_id, version_ordinal)
);
CREATE INDEX version_comments_version_idx ON dagapp.version_comments USING btree (asset_id, version_ordinal, comment_id);

ALTER TABLE dagapp.asset_audit ALTER COLUMN asset_id DROP NOT NULL;
ALTER TABLE dagapp.asset_audit ADD COLUMN platform_id varchar(64);
CREATE INDEX asset_audit_actor_idx ON dagapp.asset_audit USING btree (actor, audit_id);
CREATE INDEX asset_audit_action_idx ON dagapp.asset_audit USING btree (action, audit_id);
CREATE INDEX asset_audit_request_idx ON dagapp.asset_audit USING btree (request_id, audit_id);
CREATE INDEX asset_audit_time_idx ON dagapp.asset_audit USING btree (created_at);

-- What reviewers ask for: every finished version of a living asset, with what was approved before it.
CREATE VIEW dagapi.reviews WITH (security_barrier) AS
SELECT v.asset_id, v.version_ordinal, v.version_label, v.revision, v.title, v.access_level, v.submitted_by,
       v.approval_state, v.rejection_reason, v.processed_at, v.review_due_at, v.reminded_at, v.current_request_id,
       v.report ->> 'verdict' AS verdict, jsonb_array_length(v.findings) AS finding_count,
       a.platform_id, a.data_type, a.clearance_state, a.exposure,
       p.version_ordinal AS previous_ordinal, p.version_label AS previous_label,
       (SELECT count(*) FROM dagapp.version_comments AS c
        WHERE c.asset_id = v.asset_id AND c.version_ordinal = v.version_ordinal) AS comment_count
FROM dagapp.asset_versions AS v
JOIN dagapp.geospatial_assets AS a ON a.asset_id = v.asset_id AND a.deleted_at IS NULL
LEFT JOIN LATERAL (
    SELECT o.version_ordinal, o.version_label FROM dagapp.asset_versions AS o
    WHERE o.asset_id = v.asset_id AND o.version_ordinal < v.version_ordinal AND o.approval_state = 'approved'
      AND o.deleted_at IS NULL
    ORDER BY o.version_ordinal DESC LIMIT 1
) AS p ON true
WHERE v.processed_at IS NOT NULL AND v.deleted_at IS NULL;

CREATE VIEW dagapi.comments WITH (security_barrier) AS
SELECT c.comment_id, c.asset_id, c.version_ordinal, c.revision, c.author, c.author_role, c.text, c.created_at
FROM dagapp.version_comments AS c
JOIN dagapp.asset_versions AS v
  ON v.asset_id = c.asset_id AND v.version_ordinal = c.version_ordinal AND v.deleted_at IS NULL
JOIN dagapp.geospatial_assets AS a ON a.asset_id = c.asset_id AND a.deleted_at IS NULL;

GRANT SELECT, INSERT ON dagapp.version_comments TO geodag_orchestrator;
GRANT SELECT ON dagapi.reviews, dagapi.comments TO geodag_gateway;
