-- The whole workflow language: fan-outs, child jobs, commands, slots, large values by reference, dead letters.

ALTER TABLE dagapp.dag_jobs
    ADD COLUMN input_refs jsonb,
    ADD COLUMN depth smallint NOT NULL DEFAULT 0,
    ADD COLUMN waiting_for jsonb,
    ADD COLUMN outputs_ref jsonb;

ALTER TABLE dagapp.dag_node_states
    ADD COLUMN input_ref jsonb,
    ADD COLUMN output_ref jsonb,
    ADD COLUMN outcomes jsonb;

ALTER TABLE dagapp.dag_attempts
    ADD COLUMN heartbeat_timeout_seconds double precision,
    ADD COLUMN child boolean NOT NULL DEFAULT false;

ALTER TABLE dagapp.dag_task_results
    ADD COLUMN output_ref jsonb,
    ADD COLUMN outcomes jsonb;

CREATE INDEX dag_jobs_parent_idx ON dagapp.dag_jobs USING btree (parent_task_id) WHERE parent_task_id IS NOT NULL;
CREATE INDEX dag_node_states_child_idx ON dagapp.dag_node_states USING btree (job_id, parent_node_id, fan_out_index) WHERE parent_node_id IS NOT NULL;
CREATE INDEX dag_node_states_child_due_idx ON dagapp.dag_node_states USING btree (job_id, not_before) WHERE parent_node_id IS NOT NULL AND status = 'WAITING';

CREATE TABLE dagapp.dag_fan_outs (
    job_id varchar(64) NOT NULL,
    node_id varchar(64) NOT NULL,
    state text NOT NULL,
    item_count integer NOT NULL,
    child_count integer NOT NULL,
    batch_size integer NOT NULL,
    max_concurrency integer NOT NULL,
    tolerated integer NOT NULL,
    next_child integer NOT NULL DEFAULT 0,
    active integer NOT NULL DEFAULT 0,
    succeeded integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    skipped integer NOT NULL DEFAULT 0,
    failures jsonb NOT NULL DEFAULT '[]'::jsonb,
    wake_at timestamptz,
    created_at timestamptz NOT NULL,
    completed_at timestamptz,
    CONSTRAINT dag_fan_outs_pkey PRIMARY KEY (job_id, node_id),
    CONSTRAINT dag_fan_outs_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id) ON DELETE CASCADE
)
WITH (fillfactor=70);

CREATE TABLE dagapp.dag_fan_out_items (
    job_id varchar(64) NOT NULL,
    node_id varchar(64) NOT NULL,
    chunk_no integer NOT NULL,
    items jsonb NOT NULL,
    CONSTRAINT dag_fan_out_items_pkey PRIMARY KEY (job_id, node_id, chunk_no),
    CONSTRAINT dag_fan_out_items_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id) ON DELETE CASCADE
);

CREATE TABLE dagapp.dag_commands (
    command_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    job_id varchar(64) NOT NULL,
    kind varchar(32) NOT NULL,
    args jsonb NOT NULL DEFAULT '{}'::jsonb,
    actor text NOT NULL,
    reason text,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    processed_at timestamptz,
    outcome text,
    CONSTRAINT dag_commands_pkey PRIMARY KEY (command_id),
    CONSTRAINT dag_commands_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id) ON DELETE CASCADE
);
CREATE INDEX dag_commands_inbox_idx ON dagapp.dag_commands USING btree (job_id) WHERE processed_at IS NULL;

CREATE TABLE dagapp.dag_limits (
    slot_key text NOT NULL,
    limit_count integer NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT dag_limits_pkey PRIMARY KEY (slot_key)
);

CREATE TABLE dagapp.dag_slots (
    slot_key text NOT NULL,
    holder varchar(160) NOT NULL,
    job_id varchar(64) NOT NULL,
    node_id varchar(64),
    priority smallint NOT NULL DEFAULT 5,
    requested_at timestamptz NOT NULL,
    granted_at timestamptz,
    noticed boolean NOT NULL DEFAULT false,
    CONSTRAINT dag_slots_pkey PRIMARY KEY (slot_key, holder),
    CONSTRAINT dag_slots_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id) ON DELETE CASCADE
);
CREATE INDEX dag_slots_waiting_idx ON dagapp.dag_slots USING btree (slot_key, priority, requested_at) WHERE granted_at IS NULL;
CREATE INDEX dag_slots_unnoticed_idx ON dagapp.dag_slots USING btree (job_id) WHERE granted_at IS NOT NULL AND NOT noticed;
CREATE INDEX dag_slots_job_idx ON dagapp.dag_slots USING btree (job_id);

CREATE TABLE dagapp.dag_dead_letters (
    dead_letter_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    message_id text NOT NULL,
    queue varchar(64) NOT NULL,
    task_id varchar(160),
    job_id varchar(64),
    body jsonb NOT NULL,
    reason text NOT NULL,
    classification text NOT NULL,
    delivery_count integer NOT NULL DEFAULT 0,
    dead_at timestamptz NOT NULL,
    resolved_at timestamptz,
    resolution text,
    resolved_by text,
    CONSTRAINT dag_dead_letters_pkey PRIMARY KEY (dead_letter_id)
);
CREATE INDEX dag_dead_letters_open_idx ON dagapp.dag_dead_letters USING btree (dead_at) WHERE resolved_at IS NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON
    dagapp.dag_fan_outs, dagapp.dag_fan_out_items, dagapp.dag_commands, dagapp.dag_limits, dagapp.dag_slots,
    dagapp.dag_dead_letters
    TO geodag_orchestrator;
