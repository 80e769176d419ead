"""Proves on a user's own data that table, hot tier, lookups and extracts agree with the log.

`finding` says what a difference is. The log is folded again by the product's own rules, in shards on disk,
and laid beside what each read path shows.
"""
