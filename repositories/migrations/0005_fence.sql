-- The worker role's only door to the engine: a side effect that changes something in place first holds its attempt.

CREATE FUNCTION fence.hold(task_id text, token text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_state text;
    found_hash text;
BEGIN
    SELECT a.state, a.token_hash INTO found_state, found_hash
    FROM dagapp.dag_attempts AS a
    WHERE a.task_id = hold.task_id
    FOR SHARE;
    -- Unknown task and wrong token answer alike: a guess learns nothing.
    IF NOT FOUND OR token IS NULL OR found_hash <> encode(sha256(convert_to(hold.token, 'UTF8')), 'hex') THEN
        RAISE EXCEPTION 'fence: no attempt with this task id and token' USING ERRCODE = 'GD001';
    END IF;
    IF found_state <> 'leased' THEN
        RAISE EXCEPTION 'fence: the attempt is %, not leased', found_state USING ERRCODE = 'GD002';
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION fence.hold(text, text) FROM PUBLIC;
