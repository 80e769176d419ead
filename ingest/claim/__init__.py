"""Who may commit: leases, epochs, and commits whose outcome is unknown."""
