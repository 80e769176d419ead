"""The manifest of a hot folder: which generations there are, oldest first, and the last seal.

It is replaced as a whole, and each one has a version, one higher than the one before. No file name is
ever used twice.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from thermocline.serving.hot.generation import Covered

FORMAT: Final = 4
_FILE_FORM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MANIFEST: Final = "manifest.json"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Listed(msgspec.Struct, frozen=True):
    """A generation's file, and the size of the map that all who open it must use."""

    name: str
    map_bytes: int

    def __post_init__(self) -> None:
        if _FILE_FORM.fullmatch(self.name) is None:  # safety: hot-file-form
            raise ValueError("a generation has the name of no such file")


class Seal(msgspec.Struct, frozen=True):
    """When (monotonic seconds) the sealed generations last became complete, and their positions then."""

    at: float
    covered: tuple[Covered, ...]


class HotManifest(msgspec.Struct, frozen=True):
    """The generations of one tier. The last one is active, the others are sealed and never change.

    ``source`` names the log that they were read from: offsets of another one, of a topic that was made again
    too, mean other records. ``topics`` are by their numbers (`serving.hot.topics`). Where reading began below
    a snapshot without rows, compaction may have dropped tombstones by then: of those written at
    ``complete_from_ms`` (our clock) or later it had dropped none. Otherwise it is 0, and none is missing that
    matters to any later snapshot. ``definition`` is the JSON that the records were decoded by, but for its
    topics. ``seal`` is None before the first one.
    """

    format: int
    boot_id: str
    source: str
    complete_from_ms: int
    definition: str
    definition_version: int
    topics: tuple[str, ...]
    version: int
    generations: tuple[Listed, ...]
    seal: Seal | None


def read_manifest(folder: Path) -> HotManifest | None:
    """The manifest; None when there is none, or none of this boot and format.

    The files of another boot may have been written only in part, and its monotonic clock was another one.
    """
    try:
        manifest = _decoder.decode((folder / MANIFEST).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    # safety: hot-this-boot
    return manifest if (manifest.format, manifest.boot_id) == (FORMAT, boot_id()) else None


def publish_manifest(folder: Path, manifest: HotManifest) -> None:
    """Replaces the manifest: whoever reads finds the old one or the new one, whole."""
    scratch = folder / f"{MANIFEST}.new"
    scratch.write_bytes(msgspec.json.encode(manifest))
    scratch.replace(folder / MANIFEST)


@cache
def boot_id() -> str:
    """What tells this run of the machine from others; not the container's, whose clock is the machine's."""
    return BOOT_ID.read_text().strip()


_decoder = msgspec.json.Decoder(HotManifest)
