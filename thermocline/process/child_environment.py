"""The environment of programs that this one starts: without our settings and keys."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

__all__ = ["settings_kept_back", "without_settings"]

_PREFIX: Final = "THERMOCLINE_"
_KEY: Final = "THERMOCLINE_KEY"
"""Of a client of a server."""
_SECTION: Final = "__"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables but for those that are settings, such as ``THERMOCLINE_VIEWS__PASSWORD``, or a key."""
    return {name: value for name, value in environment.items() if not _is_setting(name)}


@contextmanager
def settings_kept_back() -> Iterator[None]:
    """Within the block, this process has no such variables: what starts programs there passes all on."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if _is_setting(name)}
    try:
        yield
    finally:
        os.environ.update(kept)


def _is_setting(name: str) -> bool:
    return name == _KEY or (name.startswith(_PREFIX) and _SECTION in name.removeprefix(_PREFIX))
