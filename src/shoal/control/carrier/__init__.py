"""The relay behind RabbitMQ: it has the ledger, answers what workers ask for, and publishes work ahead."""
