"""Ingest: a Kafka topic of upserts becomes one merge-on-read Iceberg commit after another.

Its rooms, each standing on those below it:

    run                 the command: one table, or several in turns
    owner/              ``owner`` (the loop), ``position`` (where the table stands), ``turns``,
                        ``observers`` (of batches and commits: ``standing``, ``mirror``, ``lineage/``)
    table/   replay/    create, alter, drop, resume, look │ quarantined records, applied later
    engine/             what runs tasks: this process (``local``) or Spark, and what is shipped to it
    claim/              who may commit: ``lease``, ``ownership``, ``reconcile`` (of unconfirmed commits)
    commit/             ``change`` (what a commit brings), ``commit`` (rows, seam and accounting in one commit
                        that a stale owner can't make), ``metadata`` and ``java_metadata`` (Iceberg's library)
    batch/              ``plan`` (seam and log ends → ranges, pure), ``read_task`` (ranges → decoded records
                        packed by bucket), ``bucket_task`` (records of a bucket → data file and deletes;
                        ``probe`` finds the rows that they replace, ``unchanged`` those that say nothing new)
    quarantine          the companion table of bad records
    activity            what is told to whoever watches at a terminal
"""
