-- A child job knows which slots the jobs hold that wait for it: it would wait for one of them for ever.
ALTER TABLE dagapp.dag_jobs ADD COLUMN slots_above jsonb;
