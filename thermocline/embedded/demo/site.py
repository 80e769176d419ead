"""Where the demo takes place: the processes, the table, and the ways to write to it and to ask it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thermocline.clock import Clock
from thermocline.embedded.demo.lookups import Lookups
from thermocline.embedded.demo.writer import Writer
from thermocline.embedded.oracle import Oracle
from thermocline.embedded.stack import TABLE, TOPIC, Stack

# The client's own remarks would tear the screen; what matters reaches us as an error.
QUIET = {"log_level": 0}


@dataclass(frozen=True, slots=True)
class Site:
    """A running stack, and the oracle of all that is written to it."""

    stack: Stack
    clock: Clock
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

    def writer(self) -> Writer:
        """A new producer of single records."""
        return Writer(self.client_config, self.topic, self.oracle, self.clock)
