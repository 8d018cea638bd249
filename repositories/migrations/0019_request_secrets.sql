-- Credentials of sources behind URLs, sealed, for as long as their job runs.

CREATE TABLE dagapp.request_secrets (
    job_id varchar(64) NOT NULL,
    sealed text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT request_secrets_pkey PRIMARY KEY (job_id),
    CONSTRAINT request_secrets_job_id_fkey FOREIGN KEY (job_id) REFERENCES dagapp.dag_jobs (job_id) ON DELETE CASCADE
);

GRANT SELECT, INSERT, UPDATE, DELETE ON dagapp.request_secrets TO geodag_orchestrator;
