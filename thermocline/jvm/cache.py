"""The folder outside the clone for what was fetched once: jars and Java launchers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Gives `THERMOCLINE_CACHE` where it is set, else `thermocline` in the platform's cache folder.

    The folder may not exist yet. Everything in it can be deleted at any time: it is fetched or built again.
    """
    if chosen := environment.get("THERMOCLINE_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "thermocline"
    shared = Path(environment.get("XDG_CACHE_HOME", ""))
    # The XDG rule: a relative path is to be ignored.
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "thermocline"
