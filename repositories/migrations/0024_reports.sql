-- What serving shows of a version's validation; a view of its own, so that no tile reads a report.

CREATE VIEW dagserve.reports WITH (security_barrier) AS
SELECT asset_id, version_ordinal, version_label, processing_state, report, error, created_at, updated_at
FROM dagapp.asset_versions
WHERE deleted_at IS NULL;

GRANT SELECT ON dagserve.reports TO geodag_serving;
