-- Lists of jobs go on behind the last job of a page, and the jobs of a batch were all created at one moment: the id is part of the
-- order, and so of the indexes. It never changes, so that no update of a job leaves its page for them. The new ones are built before
-- the old ones go, so that jobs can be read meanwhile.
CREATE INDEX dag_jobs_created_id ON dagapp.dag_jobs USING btree (created_at, job_id);
CREATE INDEX dag_jobs_status_id ON dagapp.dag_jobs USING btree (status, created_at, job_id);
CREATE INDEX dag_jobs_workflow_status_id ON dagapp.dag_jobs USING btree (workflow_id, status, created_at, job_id);
DROP INDEX dagapp.dag_jobs_created_idx, dagapp.dag_jobs_status_idx, dagapp.dag_jobs_workflow_status_idx;
ALTER INDEX dagapp.dag_jobs_created_id RENAME TO dag_jobs_created_idx;
ALTER INDEX dagapp.dag_jobs_status_id RENAME TO dag_jobs_status_idx;
ALTER INDEX dagapp.dag_jobs_workflow_status_id RENAME TO dag_jobs_workflow_status_idx;
