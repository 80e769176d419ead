"""Chooses what observes an owner, by the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thermocline.ingest.owner.lineage.observer import lineage_of
from thermocline.ingest.owner.mirror import SeamMirror, writer_to
from thermocline.ingest.owner.observers import Observer, Observers
from thermocline.ingest.owner.standing import StandingWatch

if TYPE_CHECKING:
    from thermocline.ingest.owner.owner import Owner
    from thermocline.settings import Settings

__all__ = ["observers_of"]


def observers_of(owner: Owner, settings: Settings) -> Observers:
    """What observes an owner that has just taken its table; each begins at once, and ends with it."""
    observers: list[Observer] = [StandingWatch(owner, settings.kafka)]
    table = owner.definition.name
    if group := settings.ingest.group_of(table):
        seam = owner.position.seam
        observers.append(SeamMirror(table, group, seam, writer_to(settings.kafka, group)))
    if settings.lineage.url:
        observers.append(lineage_of(settings, owner.definition, owner.table, owner.clock))
    return Observers(*observers)
