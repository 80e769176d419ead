"""Views: a live table in Trino as of now, as SQL that lays the log over a snapshot.

    facts (table, log) ──► plan ──► render ──► publish ──► Trino
                            │                     ▲
                         lifetime             published (what stands there)

The SQL: ``render`` first (the overlay, in each kind of view), then ``render_window`` (which records of the
log count; ``groups`` says which partitions a scan reads together), ``render_records`` (bytes to good rows, by
the record rule), ``fields``, ``fields_decimal`` and ``fields_document`` (one value, a decimal, a document),
``render_view`` (names, comments, statements), ``sql`` (quoting).

Publishing: ``facts`` (what is known of table and log), ``transactions`` (whether producers use them),
``plan`` (which views there should be), ``lifetime`` (until when), ``published`` (what stands in Trino, and
whether it must go), ``publish`` (one round after another), ``publication`` (with the real parts), ``watch``
(again and again, beside ingest), ``leases`` (which snapshots views read), ``orphaned_metadata`` (old
metadata), ``trino_client`` (the only one that knows Trino's client). ``pin``, ``drop`` and ``check`` are the
commands of these names; ``view_status`` is what ``check`` and ``status`` say of each view.

Trino's own files, ``views config``: ``config`` (all of them), ``lake`` and ``kafka_client`` (our settings in
Trino's words), ``topics`` (a topic as a table), ``access`` (rights), ``limits`` (groups and session
properties), ``guide`` (their README), ``properties`` (Java's files, secrets apart).
"""
