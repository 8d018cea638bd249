-- Whether the newest message of a task became a dead letter, asked for every task that waits in a queue and is looked at.
CREATE INDEX dag_dead_letters_message_idx ON dagapp.dag_dead_letters USING btree (message_id);
