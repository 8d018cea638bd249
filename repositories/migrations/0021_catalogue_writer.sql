-- The lock of the catalogue's one writer: a table that its writers alone may lock; an advisory lock anybody could hold.

CREATE TABLE fence.catalogue_writer (
    nothing boolean
);

GRANT USAGE ON SCHEMA fence TO geodag_orchestrator;
GRANT SELECT, UPDATE ON fence.catalogue_writer TO geodag_orchestrator, geodag_worker;
