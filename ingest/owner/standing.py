"""The standing of an owner's table in its log, looked at beside the batches and shown as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from thermocline.ingest.owner.observers import Observer
from thermocline.kafka.log import Log
from thermocline.kafka.standing import standing_at
from thermocline.process.metrics import forget_standing, show_standing, show_standing_as
from thermocline.process.repeated import Repeated

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.commit.commit import Landed
    from thermocline.ingest.owner.owner import Owner
    from thermocline.settings import KafkaSettings

__all__ = ["StandingWatch"]

LOOK_SECONDS: Final = 15.0
"""As often as Prometheus mostly scrapes; a look takes some questions to the broker, and a record of each
partition that is behind."""


class StandingWatch(Observer):
    """Looks at the log now and then, and after each commit; what it finds, it shows as metrics."""

    def __init__(self, owner: Owner, kafka: KafkaSettings) -> None:
        """Begins at once."""
        self._owner, self._kafka = owner, kafka
        self._table = owner.definition.name
        self._log: Log | None = None
        self._repeated = Repeated(f"the look at the log of {self._table}", self.look, LOOK_SECONDS)
        self._repeated.start()

    def look(self) -> None:
        """Looks once. Raises what `standing_at` raises; what is shown is no number then."""
        owner = self._owner
        try:
            self._log = self._log or Log(self._kafka, owner.clock)
            config = self._kafka.client_config()
            standing = standing_at(
                self._log, config, owner.definition, owner.at, owner.clock, owner.bytes_per_record
            )
        except BaseException:
            show_standing_as(self._table, {})
            raise
        if not self._repeated.is_closed:
            show_standing(self._table, standing, owner.clock.now_ms())

    def landed(self, landed: Landed, change: TableChange) -> None:  # noqa: ARG002  an observer's
        """Looks again: less waits now."""
        self._repeated.wake()

    def close(self) -> None:
        """Shows nothing any more."""
        self._repeated.close()
        forget_standing(self._table)
