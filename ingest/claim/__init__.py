"""The right to commit: leases, epochs, and commits whose outcome is unknown."""
