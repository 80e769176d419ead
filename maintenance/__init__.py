"""Maintenance: keeps a table as fast to read as when it was new, beside the writer and never in its way.

`upkeep` takes turns with the owner's batches: read it first. What a turn does is in `planning`, `rewriting`,
`expiring`, `small_commits` and `cleaning`, which all write to the `journal`.

`measure` says what a table's files are, from its manifests; `plan` what to do about them, under a budget, and
`manifests` and `expiry` what about the metadata (pure, all three). `compact` is the task that rewrites files
on ingest's engine, and `merge` puts their rows in order. `landing` fits what the task wrote to the table as
it is by then. `sweep` deletes, much later, what no snapshot needs any more, and `orphans` what none ever had.
`run` is one round for cron, `status` what people and programs are shown.
"""
