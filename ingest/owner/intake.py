"""Rows of another source than the table's topics, taken in by a commit of their own.

They are as of that commit: they take the place of rows of their keys that were committed before (where
columns order records, the higher sequence wins, as ever), and lose against every record of Kafka at or beyond
the commit's seam. The seam stays where it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thermocline.errors import ThermoclineError
from thermocline.iceberg.catalog import SUMMARY_TAKEN_IN, TAKEN_IN_PROPERTY
from thermocline.iceberg.files import data_location, delete_files
from thermocline.ingest.batch.accounting import account
from thermocline.ingest.batch.scan import Scan, Share
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed, Rejected, landed
from thermocline.upsert.bucket_task import written_paths
from thermocline.upsert.files_by_bucket import with_held

if TYPE_CHECKING:
    from thermocline.ingest.batch.source import Source
    from thermocline.ingest.owner.owner import Owner

__all__ = ["take_in"]


def take_in(owner: Owner, source: Source, called: str) -> Landed:
    """Commits the rows of a source, between two batches; ``called`` is what the snapshot says of it.

    Raises:
        SourceInvalid: its rows are none of the table's, or a key is in two of them. Nothing was committed.
        ThermoclineError: the engine failed, or the commit did not land.
    """
    owner.lease.check()
    files = with_held(owner.position.files, owner.upkeep.held())
    (result,) = owner.engine.run(Scan(source, [Share(owner.task, files, data_location(owner.table))]))
    if isinstance(result, ThermoclineError):
        raise result
    change = replace(
        TableChange.carrying_on(owner.position),
        accounting=account(result, owner.definition.on_error),
        files=result.buckets,
        ranges=called,
        summary={SUMMARY_TAKEN_IN: called},
        properties={TAKEN_IN_PROPERTY: called},
    )
    outcome = owner.land(change)
    if isinstance(outcome, Rejected):
        delete_files(owner.table.io, written_paths(result.buckets))
    return landed(outcome)
