"""Sessions that the fleet shares: who is logged in, as it is used and as it is kept."""
