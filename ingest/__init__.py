"""Ingest: a Kafka topic of upserts becomes one merge-on-read Iceberg commit after another.

Read in this order: ``owner`` (the loop), ``plan`` (seam and log ends → ranges, pure), ``batch`` (one batch on
Spark), ``read_task`` (ranges → decoded records packed by bucket), ``bucket_task`` (records of a bucket → data
file and deletes; ``probe`` finds the rows that they replace, ``unchanged`` those that say nothing new),
``commit`` (rows, seam and accounting in one commit that a stale owner can't make). ``create`` makes a table,
``quarantine`` keeps bad records, ``spark`` and ``java`` reach the JVM, ``content_files`` with whole lists.
"""
