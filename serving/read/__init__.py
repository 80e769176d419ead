"""Reads at one read point: lookups, extracts, changes and SQL over cold rows with the hot ones laid over."""
