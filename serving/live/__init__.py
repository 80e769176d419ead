"""The table as of now as an Iceberg snapshot that no catalog names, for any engine that reads Iceberg.

``records`` makes records of hot winners, as a batch of ingest has them. ``overlay`` runs ingest's bucket task
on them over the files of the newest snapshot, and on what came since over the outcome of that; ``metadata``
says what the table is with the files so made. ``maker`` does so for whoever asks, by ``turns``. Nothing of it
ever reaches the table's catalog.
"""
