"""Lineage: events of OpenLineage about an owner's commits, sent beside its batches.

``observer`` notes what happens (``happened``), and ``sending`` has a thread that makes events of it
(``events``) and posts them (``post``). ``datasets`` has the names by which other programs' events know the
same topics and tables.

Source: OpenLineage specification 2-0-2, its facets, and its naming conventions.
"""
