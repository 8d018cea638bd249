-- Rendered by core.schema from core.models; a test proves that the catalogs are equal. Later changes get their own number.

CREATE TABLE dagapp.dag_workflows (
    definition_hash text NOT NULL,
    workflow_id text NOT NULL,
    version integer NOT NULL,
    definition jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT dag_workflows_pkey PRIMARY KEY (definition_hash)
);

CREATE INDEX dag_workflows_id_version_idx ON dagapp.dag_workflows USING btree (workflow_id, version);

CREATE TABLE dagapp.dag_orchestrators (
    owner_id text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    build_id text NOT NULL,
    state text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    heartbeat_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT dag_orchestrators_pkey PRIMARY KEY (owner_id)
);

CREATE TABLE dagapp.dag_workers (
    worker_id text NOT NULL,
    queue text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    build_id text NOT NULL,
    state text NOT NULL,
    free jsonb NOT NULL DEFAULT '{}'::jsonb,
    started_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    heartbeat_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT dag_workers_pkey PRIMARY KEY (worker_id)
);

CREATE TABLE dagapp.dag_jobs (
    job_id varchar(64) NOT NULL,
    workflow_id varchar(64) NOT NULL,
    workflow_version integer NOT NULL,
    definition_hash text NOT NULL,
    status text NOT NULL DEFAULT 'PENDING',
    input_params jsonb NOT NULL,
    run_no integer NOT NULL DEFAULT 1,
    version bigint NOT NULL DEFAULT 0,
    owner_id varchar(64),
    owner_epoch bigint NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 5,
    paused_at timestamptz,
    wake_at timestamptz,
    deadline_at timestamptz,
    parent_task_id text,
    correlation_id text,
    submitted_by text,
    outputs jsonb,
    error jsonb,
    warnings jsonb NOT NULL DEFAULT '[]'::jsonb,
    evaluation_failures smallint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    updated_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    started_at timestamptz,
    completed_at timestamptz,
    CONSTRAINT dag_jobs_pkey PRIMARY KEY (job_id),
    CONSTRAINT dag_jobs_definition_hash_fkey FOREIGN KEY (definition_hash) REFERENCES dagapp.dag_workflows (definition_hash),
    CONSTRAINT dag_jobs_status_check CHECK (status IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED'))
)
WITH (fillfactor=80);

CREATE INDEX dag_jobs_owner_wake_idx ON dagapp.dag_jobs USING btree (owner_id, wake_at) WHERE status IN ('PENDING','RUNNING');

CREATE INDEX dag_jobs_unowned_idx ON dagapp.dag_jobs USING btree (created_at) WHERE owner_id IS NULL AND status IN ('PENDING','RUNNING');

CREATE INDEX dag_jobs_correlation_idx ON dagapp.dag_jobs USING btree (correlation_id) WHERE correlation_id IS NOT NULL;

CREATE INDEX dag_jobs_created_idx ON dagapp.dag_jobs USING btree (created_at);

CREATE TABLE dagapp.dag_node_states (
    job_id varchar(64) NOT NULL,
    node_id varchar(64) NOT NULL,
    status text NOT NULL DEFAULT 'PENDING',
    task_id varchar(160),
    attempt integer NOT NULL DEFAULT 0,
    retries_used integer NOT NULL DEFAULT 0,
    losses_used integer NOT NULL DEFAULT 0,
    not_before timestamptz,
    skip_reason text,
    waiting_for jsonb,
    input_params jsonb,
    params_override jsonb,
    output jsonb,
    error jsonb,
    parent_node_id varchar(64),
    fan_out_index integer,
    ready_at timestamptz,
    first_dispatched_at timestamptz,
    dispatched_at timestamptz,
    started_at timestamptz,
    completed_at timestamptz,
    CONSTRAINT dag_node_states_pkey PRIMARY KEY (job_id, node_id),
    CONSTRAINT dag_node_states_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id) ON DELETE CASCADE,
    CONSTRAINT dag_node_states_status_check CHECK (status IN ('PENDING', 'READY', 'WAITING', 'DISPATCHED', 'RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')),
    CONSTRAINT dag_node_states_skip_reason_check CHECK (skip_reason IN ('not_taken', 'bypassed', 'upstream_failed'))
)
WITH (fillfactor=70);

CREATE TABLE dagapp.dag_attempts (
    task_id varchar(160) NOT NULL,
    job_id varchar(64) NOT NULL,
    node_id varchar(64) NOT NULL,
    attempt integer NOT NULL,
    dispatch_no integer NOT NULL DEFAULT 1,
    state text NOT NULL DEFAULT 'queued',
    queue varchar(64) NOT NULL,
    handler varchar(64) NOT NULL,
    priority smallint NOT NULL DEFAULT 5,
    params_digest text NOT NULL,
    token_hash text NOT NULL,
    timeout_seconds double precision NOT NULL,
    queued_at timestamptz NOT NULL,
    redispatch_at timestamptz,
    claim_id text,
    worker_id text,
    leased_at timestamptz,
    lease_expires_at timestamptz,
    ended_at timestamptz,
    progress jsonb,
    peak_rss_bytes bigint,
    reason text,
    CONSTRAINT dag_attempts_pkey PRIMARY KEY (task_id),
    CONSTRAINT dag_attempts_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id) ON DELETE CASCADE,
    CONSTRAINT dag_attempts_state_check CHECK (state IN ('queued', 'parked', 'leased', 'reported', 'released', 'expired', 'revoked'))
)
WITH (fillfactor=70);

CREATE INDEX dag_attempts_live_idx ON dagapp.dag_attempts USING btree (job_id, node_id) WHERE state IN ('queued','parked','leased');

CREATE INDEX dag_attempts_worker_idx ON dagapp.dag_attempts USING btree (worker_id) WHERE state = 'leased';

CREATE INDEX dag_attempts_queue_live_idx ON dagapp.dag_attempts USING btree (queue, state) WHERE state IN ('queued','leased');

CREATE TABLE dagapp.dag_task_results (
    task_id varchar(160) NOT NULL,
    job_id varchar(64) NOT NULL,
    node_id varchar(64) NOT NULL,
    attempt integer NOT NULL,
    status text NOT NULL,
    output jsonb,
    error jsonb,
    findings jsonb NOT NULL DEFAULT '[]'::jsonb,
    metrics jsonb NOT NULL DEFAULT '{}'::jsonb,
    worker_id text,
    reported_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    processed boolean NOT NULL DEFAULT false,
    disposition text,
    CONSTRAINT dag_task_results_pkey PRIMARY KEY (task_id)
);

CREATE INDEX dag_task_results_inbox_idx ON dagapp.dag_task_results USING btree (job_id) WHERE NOT processed;

CREATE TABLE dagapp.dag_job_events (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    job_id varchar(64) NOT NULL,
    node_id varchar(64),
    task_id varchar(160),
    event_type varchar(64) NOT NULL,
    event_status text,
    event_data jsonb NOT NULL DEFAULT '{}'::jsonb,
    checkpoint_name text,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT dag_job_events_pkey PRIMARY KEY (event_id, created_at)
)
PARTITION BY RANGE (created_at);

CREATE TABLE dagapp.dag_job_events_default PARTITION OF dagapp.dag_job_events DEFAULT;

CREATE INDEX dag_job_events_job_idx ON dagapp.dag_job_events USING btree (job_id, event_id);

CREATE TABLE dagapp.dag_checkpoints (
    job_id varchar(64) NOT NULL,
    node_id varchar(64) NOT NULL,
    params_digest text NOT NULL,
    phase text NOT NULL,
    state jsonb NOT NULL,
    saved_by varchar(160) NOT NULL,
    saved_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT dag_checkpoints_pkey PRIMARY KEY (job_id, node_id),
    CONSTRAINT dag_checkpoints_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id) ON DELETE CASCADE
);

CREATE TABLE dagapp.dag_settings (
    key text NOT NULL,
    value jsonb NOT NULL,
    updated_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT dag_settings_pkey PRIMARY KEY (key)
);

CREATE TABLE dagapp.platforms (
    platform_id varchar(64) NOT NULL,
    display_name text NOT NULL,
    required_refs jsonb NOT NULL,
    optional_refs jsonb NOT NULL DEFAULT '[]'::jsonb,
    version_ref text NOT NULL,
    allowed_sources jsonb NOT NULL DEFAULT '[]'::jsonb,
    allowed_workflows jsonb NOT NULL DEFAULT '[]'::jsonb,
    collection_prefix text NOT NULL,
    is_active boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT platforms_pkey PRIMARY KEY (platform_id)
);

CREATE TABLE dagapp.geospatial_assets (
    asset_id varchar(32) NOT NULL,
    platform_id varchar(64) NOT NULL,
    platform_refs jsonb NOT NULL,
    data_type text NOT NULL,
    clearance_state text NOT NULL DEFAULT 'uncleared',
    exposure text NOT NULL DEFAULT 'latest_only',
    cleared_at timestamptz,
    cleared_by text,
    made_public_at timestamptz,
    made_public_by text,
    latest_approved_version_ordinal integer,
    deleted_at timestamptz,
    deleted_by text,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    updated_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT geospatial_assets_pkey PRIMARY KEY (asset_id),
    CONSTRAINT geospatial_assets_platform_id_fkey FOREIGN KEY (platform_id) REFERENCES dagapp.platforms (platform_id),
    CONSTRAINT geospatial_assets_clearance_state_check CHECK (clearance_state IN ('uncleared', 'ouo', 'public')),
    CONSTRAINT geospatial_assets_exposure_check CHECK (exposure IN ('latest_only', 'all_versions'))
);

CREATE INDEX geospatial_assets_refs_idx ON dagapp.geospatial_assets USING gin (platform_refs);

CREATE TABLE dagapp.asset_versions (
    asset_id varchar(32) NOT NULL,
    version_ordinal integer NOT NULL,
    version_label text NOT NULL,
    revision integer NOT NULL DEFAULT 1,
    title text NOT NULL,
    description text,
    tags jsonb NOT NULL DEFAULT '[]'::jsonb,
    access_level text NOT NULL,
    approval_state text NOT NULL DEFAULT 'pending_review',
    processing_state text NOT NULL DEFAULT 'queued',
    submitted_by text NOT NULL,
    reviewer text,
    reviewed_at timestamptz,
    rejection_reason text,
    current_job_id varchar(64),
    current_request_id varchar(64),
    source jsonb NOT NULL,
    content_hash text,
    blob_path text,
    blob_sha256 text,
    blob_size_bytes bigint,
    table_name text,
    stac_item_id text,
    stac_collection_id text,
    stac_item jsonb,
    render jsonb,
    report jsonb,
    findings jsonb NOT NULL DEFAULT '[]'::jsonb,
    error jsonb,
    external_blob_path text,
    adf_run_id text,
    deleted_at timestamptz,
    deleted_by text,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    updated_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT asset_versions_pkey PRIMARY KEY (asset_id, version_ordinal),
    CONSTRAINT asset_versions_asset_id_fkey FOREIGN KEY (asset_id) REFERENCES dagapp.geospatial_assets (asset_id),
    CONSTRAINT asset_versions_approval_state_check CHECK (approval_state IN ('pending_review', 'approved', 'rejected', 'revoked')),
    CONSTRAINT asset_versions_processing_state_check CHECK (processing_state IN ('queued', 'processing', 'completed', 'failed', 'cancelled'))
);

CREATE UNIQUE INDEX asset_versions_label_idx ON dagapp.asset_versions USING btree (asset_id, version_label) WHERE deleted_at IS NULL;

CREATE INDEX asset_versions_job_idx ON dagapp.asset_versions USING btree (current_job_id);

CREATE INDEX asset_versions_review_idx ON dagapp.asset_versions USING btree (approval_state, created_at);

CREATE TABLE dagapp.platform_requests (
    request_id varchar(64) NOT NULL,
    platform_id varchar(64) NOT NULL,
    asset_id varchar(32) NOT NULL,
    version_ordinal integer NOT NULL,
    revision integer NOT NULL,
    state text NOT NULL DEFAULT 'accepted',
    idempotency_key text,
    body_hash text NOT NULL,
    body jsonb NOT NULL,
    submitted_by text NOT NULL,
    progress jsonb NOT NULL DEFAULT '{}'::jsonb,
    errors jsonb NOT NULL DEFAULT '[]'::jsonb,
    warnings jsonb NOT NULL DEFAULT '[]'::jsonb,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    updated_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT platform_requests_pkey PRIMARY KEY (request_id),
    CONSTRAINT platform_requests_platform_id_fkey FOREIGN KEY (platform_id) REFERENCES dagapp.platforms (platform_id),
    CONSTRAINT platform_requests_asset_id_version_ordinal_fkey FOREIGN KEY (asset_id, version_ordinal) REFERENCES dagapp.asset_versions (asset_id, version_ordinal),
    CONSTRAINT platform_requests_state_check CHECK (state IN ('accepted', 'queued', 'processing', 'completed', 'failed', 'cancelled'))
);

CREATE UNIQUE INDEX platform_requests_idempotency_idx ON dagapp.platform_requests USING btree (platform_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX platform_requests_platform_idx ON dagapp.platform_requests USING btree (platform_id, created_at);

CREATE INDEX platform_requests_asset_idx ON dagapp.platform_requests USING btree (asset_id, version_ordinal);

CREATE TABLE dagapp.platform_request_jobs (
    request_id varchar(64) NOT NULL,
    job_id varchar(64) NOT NULL,
    job_type text NOT NULL,
    sequence integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT platform_request_jobs_pkey PRIMARY KEY (request_id, job_id),
    CONSTRAINT platform_request_jobs_request_id_fkey FOREIGN KEY (request_id) REFERENCES dagapp.platform_requests (request_id),
    CONSTRAINT platform_request_jobs_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id)
);

CREATE INDEX platform_request_jobs_job_idx ON dagapp.platform_request_jobs USING btree (job_id);

CREATE TABLE dagapp.asset_audit (
    audit_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    asset_id varchar(32) NOT NULL,
    version_ordinal integer,
    action text NOT NULL,
    actor text NOT NULL,
    actor_role text NOT NULL,
    reason text,
    before jsonb,
    after jsonb,
    request_id text,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT asset_audit_pkey PRIMARY KEY (audit_id)
);

CREATE INDEX asset_audit_asset_idx ON dagapp.asset_audit USING btree (asset_id, audit_id);

