-- Monthly partitions of the event log. The function belongs to geodag_owner, so the orchestrator, which may not run
-- DDL, keeps the months ahead by calling it. Partitions get no grants: rows are reached through the parent only.

CREATE FUNCTION dagapp.ensure_event_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET lock_timeout = '5s'
AS $$
DECLARE
    first_month date := date_trunc('month', dagapp.clock())::date;
    low date;
    high date;
    partition text;
    made integer := 0;
BEGIN
    IF months_ahead NOT BETWEEN 0 AND 24 THEN
        RAISE EXCEPTION 'months_ahead must be 0 to 24, not %', months_ahead USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('dagapp.ensure_event_partitions', 0));
    FOR step IN 0 .. months_ahead LOOP
        low := (first_month + make_interval(months => step))::date;
        high := (low + make_interval(months => 1))::date;
        partition := 'dag_job_events_' || to_char(low, 'YYYYMM');
        CONTINUE WHEN to_regclass(format('dagapp.%I', partition)) IS NOT NULL;
        EXECUTE format('CREATE TABLE dagapp.%I (LIKE dagapp.dag_job_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)',
                       partition);
        -- Rows of that month which already fell into the default partition move first, or attaching would fail.
        EXECUTE format('WITH moved AS (DELETE FROM dagapp.dag_job_events_default
                                       WHERE created_at >= $1 AND created_at < $2 RETURNING *)
                        INSERT INTO dagapp.%I SELECT * FROM moved', partition) USING low::timestamptz, high::timestamptz;
        EXECUTE format('ALTER TABLE dagapp.dag_job_events ATTACH PARTITION dagapp.%I FOR VALUES FROM (%L) TO (%L)',
                       partition, low::timestamptz, high::timestamptz);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
REVOKE EXECUTE ON FUNCTION dagapp.ensure_event_partitions(integer) FROM PUBLIC;

SELECT dagapp.ensure_event_partitions(2);
