"""A client of AMQP 0-9-1 brokers such as RabbitMQ, on asyncio; it knows nothing of shoal."""
