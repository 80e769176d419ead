"""Serving: lookups and extracts of a table as of now, from its files and the log beyond them.

Read ``hot`` first (what the table does not contain yet), ``cold`` (where a snapshot's rows are), then
``read.lookup`` (one laid over the other, at one read point) and ``read.extract`` (the same for millions of
rows).

    Kafka ──► tail.tailer ───► hot/  ───┐
                   │                    ├──► read/ (lookup, extract, SQL, changes) ──► http/, jobs/, live/
    catalog ► tail.follower ─► cold/ ───┘

``process`` starts the processes: one ``tailer`` per table, which writes ``hot`` and ``cold`` below the state
folder, and API workers (``http.app``, ``read.tables``), which only read there. ``tail.feed`` is the way of
records into a hot tier, also for commands that read the log themselves. Readers lease what must not be
evicted yet. ``store`` knows where files are and names their failures; ``where`` reads conditions on rows.
"""
