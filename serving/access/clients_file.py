"""The clients file as a server holds it: read again when it changes, and as it was while it can't be."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from thermocline.errors import ConfigInvalid
from thermocline.process.logs import fields
from thermocline.serving.access.clients import read_clients
from thermocline.serving.hot.file_version import file_version

if TYPE_CHECKING:
    from thermocline.serving.access.clients import Clients

__all__ = ["ClientsFile"]

log = logging.getLogger(__name__)


class ClientsFile:
    """The clients that count now. ``clients`` is another object once they are others."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigInvalid`."""
        self._path = path
        self._version = file_version(path)
        self.clients: Clients = read_clients(path)
        self.problem: str | None = None

    def told(self) -> str | None:
        """What is wrong with it, as a sentence for operators."""
        return self.problem and f"the clients file can't be read, and the one before counts: {self.problem}"

    def look(self) -> None:
        """Read it again where it changed. What can't be read changes nothing, and is told in the log."""
        version = file_version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self.clients = read_clients(self._path)
        except ConfigInvalid as error:  # safety: clients-kept
            self.problem = "; ".join(error.problems)
            extra = fields(path=str(self._path), detail=self.problem)
            log.error("clients file not taken up; the one before holds", extra=extra)  # noqa: TRY400
            return
        self.problem = None
        log.info("clients file read", extra=fields(clients=len(self.clients.clients)))
