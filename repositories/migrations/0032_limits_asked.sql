-- What workflows ask for outlives a limit that somebody sets by hand: without it whoever waited when that was lifted
-- waited until somebody else asked.
ALTER TABLE dagapp.dag_limits ADD COLUMN asked_count integer;
UPDATE dagapp.dag_limits SET asked_count = limit_count WHERE set_by IS NULL;
