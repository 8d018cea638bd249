-- Limits that an operator set; ways to what a holder holds and to all holders of a key.

ALTER TABLE dagapp.dag_limits ADD COLUMN set_by text;

CREATE INDEX dag_slots_holder_idx ON dagapp.dag_slots USING btree (holder);
CREATE INDEX dag_slots_granted_idx ON dagapp.dag_slots USING btree (slot_key) WHERE granted_at IS NOT NULL;
