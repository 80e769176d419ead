"""Say when an open transaction makes ingest stand still: once for each, and not of those that pass soon."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thermocline.errors import TransactionOpen
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from thermocline.kafka.facts import OpenTransaction
    from thermocline.rules.seam import Seam

# Kafka's default transaction.timeout.ms: the broker aborts by itself what is open for longer, so what stays
# was given more time on purpose, or hangs.
PATIENCE_SECONDS = 60.0

_logger = logging.getLogger(__name__)


class Standstill:
    """What holds a table's partitions back, since when (monotonic seconds), and what was said of it."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int, int], float] = {}
        self._told: set[tuple[str, int, int]] = set()

    def long_open(
        self, held: Sequence[OpenTransaction], seam: Seam, now: float
    ) -> tuple[OpenTransaction, ...]:
        """Those that have held the table for too long by now, and were not given before.

        A transaction holds the table once the seam has come to its beginning.
        """
        holding = {
            (one.topic, one.partition, one.begins_at): one
            for one in held
            if seam.get((one.topic, one.partition)) >= one.begins_at
        }
        self._since = {place: self._since.get(place, now) for place in holding}
        new = {place for place, since in self._since.items() if now - since >= PATIENCE_SECONDS} - self._told
        self._told = (self._told & holding.keys()) | new
        return tuple(holding[place] for place in sorted(new))


def warn(table: str, held: Sequence[OpenTransaction]) -> None:
    """A warning in the log that names them, where there are any."""
    if held:
        error = TransactionOpen(table=table, held=tuple(str(one) for one in held))
        _logger.warning(
            "transaction open",
            extra=fields(table=table, code=error.code, detail=error.what, next=error.next.partition("\n")[0]),
        )
