"""The hot tier: what the table does not contain yet, in LMDB files that many processes read and one writes.

Read ``generation`` first (what one file holds, and why that is exact), then ``record`` (its bytes),
``tier`` (who writes: append, seal, merge, evict) and ``view`` (who reads: lookups). ``pinned`` reads one
seal for as long as an extract takes. Both kinds of reader share ``winners``, for an entity, and ``scan``,
for a bucket; ``leases`` keep what readers need from being evicted. ``manifest`` lists the generations,
``merge`` makes one of two, ``arrived`` notes what came last, ``environment`` opens files.

    <table's state folder>/hot/
        manifest.json     the generations, the last one active; replaced as a whole
        <name>.mdb        a generation; <name>.mdb-lock is LMDB's
        leases/*.json     of readers and of pins
        writer.lock       held by the one tailer
"""
