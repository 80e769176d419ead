"""Facts about a table and its log when its views are planned: one look at both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.iceberg.catalog import current_state, definition_of
from thermocline.rules.identity import check_log
from thermocline.rules.seam import Seam
from thermocline.views.transactions import shows_transactions

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.kafka.facts import TopicConfig, TopicRetention
    from thermocline.kafka.log import Log
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable

__all__ = ["TableFacts", "look"]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table's newest snapshot, and its log as it was at ``looked_at_ms``: it held all from the seam on.

    ``ends`` are the log's, as a committed reader sees them, asked for after that moment.
    ``shows_transactions`` is what `views.transactions` found, whatever the definition says.
    """

    definition: LiveTable
    state: SnapshotState
    ends: Seam
    configs: Mapping[str, TopicConfig]
    retentions: Mapping[str, TopicRetention]
    looked_at_ms: int
    shows_transactions: bool = False

    @property
    def is_transactional(self) -> bool:
        """Whether producers use transactions, as the definition says or as table and log show."""
        return self.definition.transactional or self.shows_transactions

    @property
    def is_drained(self) -> bool:
        """Whether the snapshot held, at that moment, all that the log held."""
        return self.state.seam.at_least(self.ends)


def look(table: Table, name: str, log: Log, clock: Clock) -> TableFacts:
    """Look at a table, as it was loaded, and at its log now.

    Raises:
        ForeignSnapshot: its newest snapshot is none of ours.
        ThermoclineError: the log is another one, or lacks what the snapshot does not have
            (`thermocline.rules.identity.check_log`).
    """
    definition, state = definition_of(table, name), current_state(table, name)
    now_ms = clock.now_ms()  # before the log is asked: what it gains from now on is newer
    _, ends = check_log(name, state, log, definition, now_ms)  # safety: views-log-check
    topics = definition.topics
    configs = log.configs(topics)
    is_shown = shows_transactions(table, name, log, configs)
    return TableFacts(definition, state, ends, configs, log.retentions(topics), now_ms, is_shown)
