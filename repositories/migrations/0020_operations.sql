-- Requests that run several jobs, in stages.

ALTER TABLE dagapp.platform_requests
    ADD COLUMN operation jsonb,
    ADD COLUMN inputs jsonb;

ALTER TABLE dagapp.platform_request_jobs
    ADD COLUMN stage smallint NOT NULL DEFAULT 1,
    ADD COLUMN job_name text;

UPDATE dagapp.platforms SET allowed_workflows = allowed_workflows || '["raster_stepwise"]'
WHERE allowed_workflows @> '["raster_ingest"]';
