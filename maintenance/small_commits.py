"""Commits of the owner's that move no row: manifests in order of buckets, and the end of a raise of these."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from thermocline.errors import CommitRejected, InternalError
from thermocline.iceberg.alterations import NotedAlteration, with_alteration
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed, Rejected, Unknown
from thermocline.process.logs import fields
from thermocline.rules.bucket_change import finished

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import ManifestContent
    from thermocline.maintenance.journal import Journal
    from thermocline.maintenance.owning import Owning

__all__ = ["order_manifests", "raise_unit"]

_logger = logging.getLogger(__name__)


def order_manifests(owner: Owning, journal: Journal, together: Mapping[ManifestContent, int]) -> None:
    """Put the manifests of so many buckets together; none of a kind that is not named."""
    if not together:
        return
    began = journal.clock.monotonic()
    change = replace(TableChange.carrying_on(owner.position), kind="manifests", buckets_together=together)
    match owner.land(change):
        case Landed(snapshot_id, _):
            journal.add(manifest_rewrites=1)
            _logger.info(
                "manifests rewritten",
                extra=fields(
                    table=owner.definition.name,
                    snapshot_id=snapshot_id,
                    of=sorted(together),
                    seconds=round(journal.clock.monotonic() - began, 3),
                ),
            )
        case Rejected(CommitRejected() | InternalError() as error):
            journal.failed("manifests", error)
        case Rejected(error) | Unknown(error):
            raise error


def raise_unit(owner: Owning, journal: Journal) -> bool:
    """End a raise of the number of buckets, once no file has the old one; whether it did. No rewrite runs."""
    files = (file for some in owner.position.files.values() for file in some)
    raised = finished(owner.definition, (file.part.of for file in files))
    if raised is None or not journal.is_due("raise"):
        return False
    change = replace(TableChange.carrying_on(owner.position), definition=raised)
    changes = (f"buckets is {raised.buckets}: all files have so many by now",)
    noted = NotedAlteration(raised.version, journal.clock.now_ms(), change.batch_id, changes)
    change = replace(change, properties=with_alteration(owner.table.properties, noted))
    match owner.land(change):
        case Landed(snapshot_id, _):
            journal.hasten("plan")
            extra = fields(table=raised.name, snapshot_id=snapshot_id, buckets=raised.buckets)
            _logger.info("number of buckets raised", extra=extra)
            return True
        case Rejected(CommitRejected() as error):
            journal.failed("raise", error)
            return False
        case Rejected(error) | Unknown(error):
            raise error
