-- The key under which the attempts of a node ask for slots: of an item of a fan-out it is known only while its child is made.

ALTER TABLE dagapp.dag_node_states ADD COLUMN slot_key text;
CREATE INDEX dag_node_states_slotted_idx ON dagapp.dag_node_states USING btree (job_id) WHERE parent_node_id IS NOT NULL AND slot_key IS NOT NULL;
