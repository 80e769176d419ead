"""Which snapshots somebody still needs: leases, small objects beside the table.

A lease is a JSON object with ``snapshots``, of which each has its id and until when it is needed, in
milliseconds since 1970. Published views leave theirs in ``thermocline/views``; anybody else may in
``thermocline/leases``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.files import listed_folder

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

__all__ = ["leased_snapshots"]

_FOLDERS: Final = ("views", "leases")


def leased_snapshots(io: FileIO, location: str, now_ms: int) -> frozenset[int]:
    """The snapshots that leases name which have not ended.

    Raises `OSError` where leases can't be read, and `ValueError` where one is damaged: then nobody knows.
    """
    found: set[int] = set()
    for folder in _FOLDERS:
        for file in listed_folder(io, f"{location.rstrip('/')}/thermocline/{folder}"):
            with io.new_input(file.path).open() as source:
                content = source.read()
            try:
                snapshots = json.loads(content)["snapshots"]
                found |= {int(one) for one, until_ms in snapshots.items() if int(until_ms) > now_ms}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{file.path} is no lease: {error}") from error
    return frozenset(found)
