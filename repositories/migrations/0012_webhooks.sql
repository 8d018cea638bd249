-- Webhooks: signing secrets of platforms, and every delivery with how it went.

ALTER TABLE dagapp.platforms ADD COLUMN webhook_url text;

CREATE TABLE dagapp.webhook_secrets (
    platform_id varchar(64) NOT NULL,
    secret_id varchar(32) NOT NULL,
    sealed text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    expires_at timestamptz,
    CONSTRAINT webhook_secrets_pkey PRIMARY KEY (platform_id, secret_id),
    CONSTRAINT webhook_secrets_platform_id_fkey FOREIGN KEY (platform_id) REFERENCES dagapp.platforms (platform_id)
);

CREATE TABLE dagapp.webhook_deliveries (
    delivery_id varchar(64) NOT NULL,
    platform_id varchar(64) NOT NULL,
    request_id varchar(64) NOT NULL,
    asset_id varchar(32) NOT NULL,
    version_ordinal integer NOT NULL,
    url text NOT NULL,
    type text NOT NULL,
    request_state text NOT NULL,
    review text,
    state text NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    last_status integer,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    delivered_at timestamptz,
    expires_at timestamptz NOT NULL,
    CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (delivery_id),
    CONSTRAINT webhook_deliveries_request_id_fkey FOREIGN KEY (request_id) REFERENCES dagapp.platform_requests (request_id)
);
CREATE INDEX webhook_deliveries_due_idx ON dagapp.webhook_deliveries USING btree (next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_platform_idx ON dagapp.webhook_deliveries USING btree (platform_id, created_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON dagapp.webhook_secrets, dagapp.webhook_deliveries TO geodag_orchestrator;
