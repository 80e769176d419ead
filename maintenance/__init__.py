"""Maintenance: keeps a table as fast to read as when it was new, beside the writer and never in its way.

`measure` says what a table's files are, `plan` what to do about them, under a budget (pure); `compact` is the
task that does it on ingest's engine. `landing` fits what the task wrote to the table as it is by then, and
`upkeep` takes turns with the owner's batches. `expiry` takes snapshots out of the metadata, and `sweep`
deletes, much later, what no snapshot needs any more.
"""
