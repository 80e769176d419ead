"""Ingest: a Kafka topic of upserts becomes one merge-on-read Iceberg commit after another.

Read in this order: ``owner`` (the loop), ``position`` (where the table stands), ``plan`` (seam and log ends
→ ranges, pure), ``engine`` and ``batch`` (one batch on Spark), ``read_task`` (ranges → decoded records packed
by bucket), ``bucket_task`` (records of a bucket → data file and deletes; ``probe`` finds the rows that they
replace, ``unchanged`` those that say nothing new), ``change`` (what a commit brings), ``commit`` (rows, seam
and accounting in one commit that a stale owner can't make; ``metadata`` is what it needs of a store,
``java_metadata`` that of Iceberg's library).

Who may commit: ``lease`` (waiting one's turn), ``ownership`` (taking the table), ``unknown`` and
``reconcile`` (commits that nobody confirmed). Going on after a stop: ``resume``; looking without writing:
``opening``, ``progress``, ``open_transactions``. Bad records: ``bad_records`` (before the commit),
``quarantine`` and ``quarantined`` (the companion table), ``replay`` (``evidence`` gathers, ``judgement``
decides). ``create``, ``alter``, ``drop`` and ``purge`` change tables; ``spark`` and ``java`` reach the JVM,
``content_files`` with whole lists, ``manifest_order`` with what they are listed in, by ``method_handles``.
``measures``: the owner's metrics.
"""
