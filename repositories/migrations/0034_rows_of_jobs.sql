-- As the engine takes them: one that waits for the other behind another table would be a deadlock.
LOCK TABLE dagapp.dag_jobs, dagapp.dag_attempts, dagapp.dag_node_states IN ACCESS EXCLUSIVE MODE;

-- A child of a fan-out is written twice: when it starts and when it ends. With so much of a page left free its second row goes
-- beside its first, and no index has to hear of it (a HOT update); at 70 two of three rows went elsewhere.
ALTER TABLE dagapp.dag_node_states SET (fillfactor = 40);

-- Nodes and attempts are written by whoever holds the row of their job, which is there for as long as he does. To ask for it
-- once more with every row cost an eighth of what the server does for a fan-out, so the job's own end takes them along.
ALTER TABLE dagapp.dag_node_states DROP CONSTRAINT dag_node_states_job_id_fkey;
ALTER TABLE dagapp.dag_attempts DROP CONSTRAINT dag_attempts_job_id_fkey;

CREATE FUNCTION dagapp.forget_jobs() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM dagapp.dag_node_states AS n USING gone WHERE n.job_id = gone.job_id;
    DELETE FROM dagapp.dag_attempts AS a USING gone WHERE a.job_id = gone.job_id;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION dagapp.forget_jobs() FROM PUBLIC;

CREATE TRIGGER forget_jobs AFTER DELETE ON dagapp.dag_jobs
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION dagapp.forget_jobs();
