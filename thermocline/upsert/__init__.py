"""The upsert: new records of a bucket, laid over its files → the files and deletes that hold the outcome.

What is written here is part of no table yet. Ingest commits it; the live catalog serves it as a snapshot that
no catalog names.

``bucket_task`` does it for one bucket: it folds the records, asks ``probe`` where their keys stand, compares
(``sequence``, ``unchanged``), fills what records leave as it is (``partial_updates``), merges small files
(``tiers``) and writes. ``stored_rows`` reads rows by position, ``files_by_bucket`` carries the list of live
files from one outcome to the next.
"""
