"""Where the demo takes place: the processes, the table, and the ways to write to it and to ask it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedded.demo.lookups import Lookups
from embedded.demo.view_door import Ask, Connect, ViewDoor
from embedded.demo.writer import Writer
from embedded.oracle import Oracle
from embedded.stack import TABLE, TOPIC, Stack
from thermocline.process.clock import Clock

# The client's own remarks would tear the screen; what matters reaches us as an error.
QUIET = {"log_level": 0}


@dataclass(frozen=True, slots=True)
class Site:
    """A running stack, and the oracle of all that is written to it; with Trino, also how to ask that."""

    stack: Stack
    clock: Clock
    connect: Connect | None = None
    oracle: Oracle = field(default_factory=Oracle)
    table: str = TABLE
    topic: str = TOPIC

    @property
    def client_config(self) -> Mapping[str, Any]:
        """For producers."""
        return {**self.stack.settings.kafka.client_config(), **QUIET}

    @property
    def ingest_log(self) -> Path:
        """The log of ``ingest run``."""
        return self.stack.folder / "ingest.log"

    def lookups(self) -> Lookups:
        """A new connection to the server."""
        return Lookups(self.stack.url, self.table, self.clock)

    @property
    def table_in_trino(self) -> str:
        """The table's full name there; the views' names begin with it."""
        return f"{self.stack.settings.views.lake}.{self.stack.settings.table(self.table).identifier}"

    @property
    def trino_url(self) -> str | None:
        """None without Trino."""
        return self.stack.trino.url if self.stack.trino else None

    def ask(self) -> Ask:
        """A new session with Trino."""
        assert self.connect is not None
        assert self.stack.trino is not None
        return self.connect(self.stack.trino.url)

    def view_door(self) -> ViewDoor:
        """A new session with Trino, whose answers are kept."""
        return ViewDoor(self.ask(), self.table_in_trino, self.oracle, self.clock)

    def writer(self) -> Writer:
        """A new producer of single records."""
        return Writer(self.client_config, self.topic, self.oracle, self.clock)
