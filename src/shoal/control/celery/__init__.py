"""What the coordinator has to do with Celery: its broker, messages that keep workers busy, tasks that follow pages."""
