"""Things that every process has: a clock, logs, metrics, a title, its path; passwords masked."""
