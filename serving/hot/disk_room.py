"""The disk that a server has and needs, for its log and ``/status``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from thermocline.process.logs import fields
from thermocline.serving.hot.disk import free_bytes
from thermocline.serving.hot.tier import DISK_FREE_BYTES_MIN

if TYPE_CHECKING:
    from thermocline.settings import ServingSettings

log = logging.getLogger(__name__)


def disk_room(settings: ServingSettings, tables: int) -> dict[str, object]:
    """What the disk of the state folder has free, has to keep free, and is used for at most, in bytes.

    With less than ``kept_bytes`` free, tailers pause. The indexes of the tables' files come on top.
    """
    return {
        "path": str(settings.state_dir),
        "free_bytes": free_bytes(settings.state_dir),
        "kept_bytes": DISK_FREE_BYTES_MIN,
        "used_bytes_max": tables * (settings.hot_bytes_max + settings.rows_bytes_max),
    }


def log_disk_room(settings: ServingSettings, tables: int) -> None:
    """One line as the server starts; a warning where tailers pause from the beginning."""
    found = disk_room(settings, tables)
    if free_bytes(settings.state_dir) < DISK_FREE_BYTES_MIN:
        log.warning("the disk of the state folder is nearly full: tailers pause", extra=fields(**found))
    else:
        log.info("disk of the state folder", extra=fields(**found))
