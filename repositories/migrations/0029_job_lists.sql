-- Lists of jobs by status and orders by filter, however many jobs have ended. Both columns are in other indexes or their
-- conditions already, so that no update of a job leaves its page for this one.
CREATE INDEX dag_jobs_status_idx ON dagapp.dag_jobs USING btree (status, created_at);
