"""The clients file as a server holds it: read again when it changes, and as it was while it can't be."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from thermocline.errors import ConfigInvalid
from thermocline.process.logs import fields
from thermocline.serving.access.clients import read_clients

if TYPE_CHECKING:
    from thermocline.serving.access.clients import Clients

__all__ = ["ClientsFile"]

_Version = tuple[int, int, int]

log = logging.getLogger(__name__)


class ClientsFile:
    """The clients that count now. ``clients`` is another object once they are others."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigInvalid`."""
        self._path = path
        self._version: _Version | None = None
        with suppress(OSError):
            self._version = _version_of(path)
        self._seen = self._version
        self.clients: Clients = read_clients(path)
        self.problem: str | None = None

    def told(self) -> str | None:
        """What is wrong with it, as a sentence for operators."""
        return self.problem and f"the clients file can't be read, and the one before counts: {self.problem}"

    def look(self) -> None:
        """Read it again where it changed. What can't be read changes nothing, and is told in the log.

        A file that is written in place is read once it was the same for two looks: a part of it may grant
        more than all of it.
        """
        try:
            version = _version_of(self._path)
            is_still, self._seen = version == self._seen, version
            if version != self._version and is_still:  # safety: clients-whole
                self._read(version)
        except OSError as error:  # tried again with the next look
            self._note(error.strerror or str(error))

    def _read(self, version: _Version) -> None:
        try:
            found = read_clients(self._path)
        except ConfigInvalid as error:  # safety: clients-kept
            self._version = version
            self._note("; ".join(error.problems))
            return
        if _version_of(self._path) == version:
            self.clients, self._version, self.problem = found, version, None
            log.info("clients file read", extra=fields(clients=len(found.clients)))

    def _note(self, problem: str) -> None:
        if self.problem != problem:
            extra = fields(path=str(self._path), detail=problem)
            log.error("clients file not taken up; the one before holds", extra=extra)
        self.problem = problem


def _version_of(path: Path) -> _Version:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size
