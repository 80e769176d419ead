"""The cold side of serving: what one Iceberg snapshot holds, found without a scan.

``manifest`` comes first: what is published of a snapshot. ``folder`` keeps it, and what is known of each data
file: `publish` in the tailer's process, `latest` in a worker. ``index`` is that knowledge as readers have it;
``reader`` reads the rows of one entity through it: sparse index → row groups (``decoded`` shares
them) → deleted positions. ``ready`` is the form in which ``row_store`` keeps what it has
read. Extracts take the files of a bucket from the same index.
"""
