-- The lock of the catalogue's one writer is a row that only its writers may lock; an advisory lock anybody could hold.

CREATE TABLE fence.catalogue_writer (
    writer boolean NOT NULL DEFAULT true,
    CONSTRAINT catalogue_writer_pkey PRIMARY KEY (writer),
    CONSTRAINT catalogue_writer_check CHECK (writer)
);
INSERT INTO fence.catalogue_writer DEFAULT VALUES;

GRANT USAGE ON SCHEMA fence TO geodag_orchestrator;
GRANT SELECT, UPDATE ON fence.catalogue_writer TO geodag_orchestrator, geodag_worker;
