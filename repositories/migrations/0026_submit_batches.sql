-- What batches of submits were answered under their idempotency key.

CREATE TABLE dagapp.submit_batches (
    platform_id varchar(64) NOT NULL,
    idempotency_key varchar(255) NOT NULL,
    body_hash text NOT NULL,
    results jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT submit_batches_pkey PRIMARY KEY (platform_id, idempotency_key)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON dagapp.submit_batches TO geodag_orchestrator;
