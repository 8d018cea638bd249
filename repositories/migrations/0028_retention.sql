-- What is given up long after its deletion, and indexes without which the end of a job's row would read whole tables.

ALTER TABLE dagapp.asset_versions ADD COLUMN purged_at timestamptz;
CREATE INDEX dag_attempts_job_idx ON dagapp.dag_attempts USING btree (job_id);
CREATE INDEX dag_commands_job_idx ON dagapp.dag_commands USING btree (job_id);
