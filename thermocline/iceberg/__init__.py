"""Iceberg: catalogs and tables, a snapshot's files, data files with their index, deletes."""
