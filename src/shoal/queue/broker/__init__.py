"""What both sides of a broker share: the queue that workers and producers use, and the relay that has the ledger."""
