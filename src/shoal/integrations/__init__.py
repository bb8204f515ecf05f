"""shoal inside the processes of other systems."""
