"""What every process has: a clock, logs, metrics, a title; passwords masked."""
