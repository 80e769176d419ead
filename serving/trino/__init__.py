"""Hot rows for Trino's Thrift connector: what the live views of ``[views] hot = "server"`` read.

Read ``endpoint`` first (the calls of a query), then ``pins`` (one state for all of a query's scans),
``snapshots`` (what a view may be laid over), ``scan`` (which rows a scan wants, and these rows as columns).
``wire`` and ``blocks`` are the protocol; ``listener`` takes connections, and ``process`` is all of it as a
process of the server.

    Trino ──► listener ──► endpoint ──► pins ──► hot tier (LMDB read transactions)
                              └─ scan ──► blocks ──► wire
"""
