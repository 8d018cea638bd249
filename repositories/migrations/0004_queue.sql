-- The embedded task queue: a queue row is the outbox row, written in the transaction that dispatches.

CREATE TABLE dagqueue.messages (
    message_id text NOT NULL,                   -- {task_id}.{dispatch_no}
    queue text NOT NULL,
    priority smallint NOT NULL DEFAULT 5,       -- 10 leaves first
    task_id text NOT NULL,
    body jsonb NOT NULL,                        -- core.wire.TaskMessage
    enqueued_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    visible_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    locked_until timestamptz,
    lock_token text,
    delivery_count integer NOT NULL DEFAULT 0,
    CONSTRAINT messages_pkey PRIMARY KEY (message_id)
)
WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE INDEX messages_order_idx ON dagqueue.messages (queue, priority DESC, enqueued_at, message_id);
CREATE INDEX messages_task_idx ON dagqueue.messages (task_id);

CREATE TABLE dagqueue.dead_letters (
    dead_letter_id bigint GENERATED ALWAYS AS IDENTITY,
    message_id text NOT NULL,
    queue text NOT NULL,
    task_id text NOT NULL,
    body jsonb NOT NULL,
    reason text NOT NULL,
    delivery_count integer NOT NULL,
    enqueued_at timestamptz NOT NULL,
    dead_lettered_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT dead_letters_pkey PRIMARY KEY (dead_letter_id)
);

CREATE INDEX dead_letters_queue_idx ON dagqueue.dead_letters (queue, dead_lettered_at);

CREATE TABLE dagqueue.consumers (
    consumer_id text NOT NULL,
    queue text NOT NULL,
    channel text NOT NULL,                      -- the NOTIFY channel that wakes this consumer
    idle boolean NOT NULL DEFAULT false,        -- it waits: one enqueue wakes one idle consumer and clears this
    seen_at timestamptz NOT NULL DEFAULT dagapp.clock(),
    CONSTRAINT consumers_pkey PRIMARY KEY (consumer_id)
)
WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500);

CREATE INDEX consumers_queue_idx ON dagqueue.consumers (queue);
