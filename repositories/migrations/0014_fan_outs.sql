-- Fan-outs at work: what workers say of single items, timers of children, and indexes that tell children from vertices.

ALTER TABLE dagapp.dag_attempts
    ADD COLUMN outcomes jsonb,
    ADD COLUMN queue_expires_at timestamptz;

ALTER TABLE dagapp.dag_fan_outs ADD COLUMN first_attempt integer NOT NULL DEFAULT 0;

-- No column of these indexes changes with the status of a node, so that such updates stay within their page (HOT).
DROP INDEX dagapp.dag_node_states_child_due_idx;
CREATE INDEX dag_node_states_child_due_idx ON dagapp.dag_node_states USING btree (job_id, not_before) WHERE parent_node_id IS NOT NULL AND not_before IS NOT NULL;
CREATE INDEX dag_node_states_vertex_idx ON dagapp.dag_node_states USING btree (job_id) WHERE parent_node_id IS NULL;

DROP INDEX dagapp.dag_attempts_live_idx;
CREATE INDEX dag_attempts_live_idx ON dagapp.dag_attempts USING btree (job_id, node_id) WHERE state IN ('queued', 'parked', 'leased') AND NOT child;
CREATE INDEX dag_attempts_child_live_idx ON dagapp.dag_attempts USING btree (job_id, node_id) WHERE state IN ('queued', 'parked', 'leased') AND child;
