"""A Service Bus peer: AMQP 1.0 and the semantics of queues, in plain asyncio; see README.md for its contract."""
