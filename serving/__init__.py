"""Serving: lookups and extracts of a table as of now, from its files and the log beyond them.

Read ``hot`` first (what the table does not contain yet), ``cold`` (where a snapshot's rows are), then
``lookup`` (one laid over the other, at one read point) and ``extract`` (the same for millions of rows).

    Kafka ──► tailer ──► hot/  ─────┐
               │                    ├──► lookup, extract ──► app (HTTP), client
    catalog ► follower ──► cold/ ───┘

``server`` starts the processes: one ``tailer`` per table, which writes ``hot`` and ``cold`` below the state
folder, and API workers (``app``, ``tables``), which only read there. ``feed`` is the way of records into a
hot tier, also for commands that read the log themselves. Readers lease what must not be evicted yet.
"""
