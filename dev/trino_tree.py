"""The files of Trino's server that a test or a demo needs, unpacked once into the cache folder.

The archive is large (820 MB, 52 connectors); what is kept is three connectors and two managers. Most of its
files are hard links to those of another connector, so a connector cannot be unpacked by its folder's name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

from thermocline.jvm.cache import cache_folder, made_once
from thermocline.jvm.jars import Report, in_silence, jars_of, locked_jars
from thermocline.jvm.java import JavaHome

KEPT = (
    "lib",
    "plugin/iceberg",
    "plugin/kafka",
    "plugin/resource-group-managers",
    "plugin/session-property-managers",
)
_ICEBERG = "plugin/iceberg"
_DIGEST_CHARACTERS = 12


def trino_tree(*, java: JavaHome, report: Report = in_silence, cache: Path | None = None) -> Path:
    """Gives the folder with Trino's `lib` and `plugin`, fetched and unpacked if it is not there.

    The SQLite driver stands beside the Iceberg connector, which comes with PostgreSQL's alone.

    Raises:
        DependencyMissing: the archive could not be fetched, or is not what the lock names.
    """

    def make(tree: Path) -> None:
        report("fetching Trino 476 (820 MB, of which 540 MB are kept unpacked; this time only)")
        archive, driver = jars_of("trino", java=java, report=report, cache=cache)
        report("unpacking Trino")
        unpack(archive, tree)
        shutil.copy2(driver, tree / _ICEBERG)
        shutil.rmtree(archive.parent)

    return made_once((cache or cache_folder()) / "trino" / _name(), make)


def unpack(archive: Path, target: Path, kept: tuple[str, ...] = KEPT) -> None:
    """Writes those folders of an archive, and nothing else of it, with their hard links resolved.

    Files that are the same in the archive are one file here, as they were there.
    """
    with tarfile.open(archive) as listing:
        members = {member.name: member for member in listing if member.isreg() or member.islnk()}
    names: dict[str, list[Path]] = {}
    for member in members.values():
        inside = PurePosixPath(*PurePosixPath(member.name).parts[1:])
        if any(inside.is_relative_to(folder) for folder in kept):
            names.setdefault(_content_of(member, members), []).append(target / inside)
    # Read a second time: a content stands where it was first packed, often in a folder that is not kept.
    with tarfile.open(archive) as contents:
        for member in contents:
            places = names.get(member.name, [])
            content = contents.extractfile(member) if places else None
            if content is not None:
                _write(places, content)


def _name() -> str:
    """Another one where the archive or what is kept of it changes."""
    text = repr((locked_jars()["trino"], KEPT))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def _content_of(member: tarfile.TarInfo, members: dict[str, tarfile.TarInfo]) -> str:
    """The name under which the archive holds its content; a link leads to an earlier member, maybe a link."""
    while member.islnk():
        member = members[member.linkname]
    return member.name


def _write(places: list[Path], content: IO[bytes]) -> None:
    first = places[0]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place is first:
            with first.open("wb") as file:
                shutil.copyfileobj(content, file)
        else:
            os.link(first, place)
