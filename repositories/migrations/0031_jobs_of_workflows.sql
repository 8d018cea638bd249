-- Lists of the jobs of one workflow, in one status or in each of them, however many have ended. No update of a job leaves its
-- page for it: status and created_at are in other indexes already, and a job's workflow stays.
CREATE INDEX dag_jobs_workflow_status_idx ON dagapp.dag_jobs USING btree (workflow_id, status, created_at);
