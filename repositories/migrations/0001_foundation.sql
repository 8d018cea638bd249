-- Schemas and the one clock. Runs as geodag_owner, which owns everything here; roles were made by the admin bootstrap.

ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

CREATE SCHEMA dagqueue;
CREATE SCHEMA fence;
CREATE SCHEMA geo;
CREATE SCHEMA dagapi;
CREATE SCHEMA dagserve;

-- STABLE, so that `wake_at <= dagapp.clock()` can use an index; that two rows of one statement may see clocks some
-- microseconds apart changes nothing for leases and timers. A simulation replaces the body by a one-row table.
CREATE FUNCTION dagapp.clock() RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$ BEGIN RETURN clock_timestamp(); END $$;
REVOKE EXECUTE ON FUNCTION dagapp.clock() FROM PUBLIC;
