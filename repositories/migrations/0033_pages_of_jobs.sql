-- Lists of jobs go on behind the last job of a page, and the jobs of a batch were all created at one moment: the id is part of the
-- order, and so of the indexes. It never changes, so that no update of a job leaves its page for them.
DROP INDEX dagapp.dag_jobs_created_idx;
CREATE INDEX dag_jobs_created_idx ON dagapp.dag_jobs USING btree (created_at, job_id);
DROP INDEX dagapp.dag_jobs_status_idx;
CREATE INDEX dag_jobs_status_idx ON dagapp.dag_jobs USING btree (status, created_at, job_id);
DROP INDEX dagapp.dag_jobs_workflow_status_idx;
CREATE INDEX dag_jobs_workflow_status_idx ON dagapp.dag_jobs USING btree (workflow_id, status, created_at, job_id);
