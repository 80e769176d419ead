"""Chooses what observes an owner, by the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thermocline.ingest.owner.observers import Observers
from thermocline.ingest.owner.standing import StandingWatch

if TYPE_CHECKING:
    from thermocline.ingest.owner.owner import Owner
    from thermocline.settings import Settings

__all__ = ["observers_of"]


def observers_of(owner: Owner, settings: Settings) -> Observers:
    """What observes an owner that has just taken its table; each begins at once, and ends with it."""
    return Observers(StandingWatch(owner, settings.kafka))
