-- What a platform may ask for at a time.

ALTER TABLE dagapp.platforms
    ADD COLUMN requests_per_minute integer NOT NULL DEFAULT 600,
    ADD COLUMN request_burst integer NOT NULL DEFAULT 200,
    ADD COLUMN max_open_requests integer NOT NULL DEFAULT 1000;

CREATE TABLE dagapp.platform_usage (
    platform_id varchar(64) NOT NULL,
    busy_until timestamptz NOT NULL,
    CONSTRAINT platform_usage_pkey PRIMARY KEY (platform_id),
    CONSTRAINT platform_usage_platform_id_fkey FOREIGN KEY (platform_id) REFERENCES dagapp.platforms (platform_id)
)
WITH (fillfactor=50);

GRANT SELECT, INSERT, UPDATE, DELETE ON dagapp.platform_usage TO geodag_orchestrator;
