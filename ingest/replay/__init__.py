"""Quarantined records, applied later where that is still right."""
