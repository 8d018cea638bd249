-- A child of a fan-out is written twice: when it starts and when it ends. With so much of a page left free its second row goes
-- beside its first, and no index has to hear of it (a HOT update); at 70 two of three rows went elsewhere.
ALTER TABLE dagapp.dag_node_states SET (fillfactor = 40);

-- Nodes and attempts are written by whoever holds the row of their job, which is there for as long as he does. To ask for it
-- once more with every row cost an eighth of what the server does for a fan-out, so the job's own end takes them along.
ALTER TABLE dagapp.dag_node_states DROP CONSTRAINT dag_node_states_job_id_fkey;
ALTER TABLE dagapp.dag_attempts DROP CONSTRAINT dag_attempts_job_id_fkey;

CREATE FUNCTION dagapp.forget_jobs() RETURNS trigger
LANGUAGE plpgsql
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

-- Lists and outputs are compressed with lz4 where the server has it: the inputs of 10,000 items took it 25 ms without.
DO $$
DECLARE
    large record;
BEGIN
    IF (SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        FOR large IN
            SELECT a.attrelid::regclass AS name, a.attname AS field
            FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
            WHERE c.relnamespace IN ('dagapp'::regnamespace, 'dagqueue'::regnamespace) AND c.relkind = 'r'
                AND a.atttypid = 'jsonb'::regtype AND NOT a.attisdropped
                AND c.relname IN ('dag_jobs', 'dag_node_states', 'dag_attempts', 'dag_task_results', 'dag_fan_out_items',
                                  'dag_checkpoints', 'messages')
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET COMPRESSION lz4', large.name, large.field);
        END LOOP;
    END IF;
END
$$;
