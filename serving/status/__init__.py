"""The status of a server and its tables, as one document of typed parts.

``document`` has the parts, which ``/status`` sends and the pages show. ``gather`` makes them, for one table
after the other, of what the process holds anyway (the served snapshot, a look at the hot tier) and of what
the table's tailer leaves in ``tailer.json`` and ``table.json``; nothing here asks Kafka, catalog or store.
``findings`` says what is wrong and what to do next, ``words`` how numbers and times are read.
"""
