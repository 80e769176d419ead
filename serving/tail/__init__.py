"""Tailers, which feed the hot tier from the log, and followers, which publish snapshots."""
