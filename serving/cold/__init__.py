"""The cold side of serving: what one Iceberg snapshot holds, found without a scan.

``index`` comes first: `publish` (in the tailer's process) writes what a reader needs to know of a snapshot,
`ColdIndex` is that knowledge in a worker. ``reader`` then reads the rows of one entity through it: sparse
index → row groups → deleted positions. Extracts take the files of a bucket from the same index.
"""
