-- Why a task waits although workers are there, and how long jobs of a workflow took.

ALTER TABLE dagapp.dag_attempts ADD COLUMN no_fit text;
CREATE INDEX dag_jobs_history_idx ON dagapp.dag_jobs USING btree (workflow_id, completed_at) WHERE status = 'COMPLETED';
