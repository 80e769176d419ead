"""Conditions on an extract's rows: SQL from callers, as typed conditions on the table's columns.

``predicate`` is what a condition can be; ``sql`` reads one, with each value checked against its column;
``expression`` makes of it what DuckDB evaluates, for cold and hot rows alike; ``key_range`` says which keys
it leaves, and so which buckets and files; ``arrow`` reads what DuckDB hands to a scan. No text of a caller
becomes part of a query.
"""

from __future__ import annotations
