-- The key under which the attempts of a node ask for slots: of an item of a fan-out it is known only while its child is made.

ALTER TABLE dagapp.dag_node_states ADD COLUMN slot_key text;
