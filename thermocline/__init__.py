"""Thermocline serves an Iceberg table as of now: Kafka upserts, merged and overlaid at an exact offset.

Read ``definition`` (what a live table is), ``seam`` (where cold ends and hot begins), ``fold`` (the last one
wins) and ``log`` first; ``ingest`` and ``serving`` build on these and never on each other.
"""

from __future__ import annotations

__version__ = "0.1.0"
