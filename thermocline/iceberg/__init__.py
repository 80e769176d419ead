"""Iceberg: catalogs and tables, a snapshot's files, data files with their index, deletes.

``catalog`` opens a catalog and a table, and reads what a snapshot says of itself. ``catalog_properties`` is
the one table that translates a catalog's settings for PyIceberg, Java, Trino and DuckDB.

``files``, ``rows``, ``data_file``, ``sparse_index`` and ``deletes`` list a snapshot's files, read their rows,
and write a data file, its index, and deletion vectors. ``avro`` reads manifests, and parses each of their
schemas once. ``row_lineage`` is the lineage of rows that move to another file.

``leases`` says who needs which snapshot, ``lineage`` and ``reading`` what the snapshots are, and which of
their commits read which offsets. ``compared`` has a table beside the definition that the file has for it.
"""
