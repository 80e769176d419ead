"""Checks of a table before an owner takes it, which need no ownership; and the wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thermocline.errors import DefinitionDiffers, TopicMissing
from thermocline.iceberg.foreign_schema import check_schema
from thermocline.ingest.batch.bad_records import BadRecordsPolicy, check_dead_letter_topic
from thermocline.ingest.claim.ownership import Claim
from thermocline.ingest.commit.rotation import check_what_is_there
from thermocline.kafka.log import Log
from thermocline.rules.contract.in_file import with_evolved
from thermocline.rules.topic_patterns import finds

if TYPE_CHECKING:
    from thermocline.ingest.claim.lease import Say
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.settings import Settings


@dataclass(frozen=True, slots=True)
class Opening:
    """A table that is as its owner needs it, and may be another process's still."""

    settings: Settings
    claim: Claim
    log: Log
    client_config: dict[str, Any]
    registry: SchemaRegistry | None
    policy: BadRecordsPolicy

    @classmethod
    def of(
        cls, settings: Settings, name: str, clock: Clock, log: Log | None = None, say: Say | None = None
    ) -> Opening:
        """Check definition and topics; ``log`` is of the configured cluster.

        ``say`` gets a line when an owner has to be waited for.

        Raises:
            DefinitionDiffers: the file does not say what the table's definition says.
            ForeignSchema: another program changed the table's columns.
            ThermoclineError: the log does not fit the table (``thermocline.rules.identity.check_log``).
        """
        claim = Claim.of(settings, name, clock, say)
        definition = checked_definition(claim.definition, settings, name)
        check_schema(claim.table, definition)
        state = claim.state()
        log = log or Log(settings.kafka)
        properties, seconds = claim.table.properties, settings.table(name).deleted_topic_seconds
        try:
            check_what_is_there(definition, state, log, properties, clock.now_ms(), seconds)
        except TopicMissing as error:
            if not finds(definition.topic_patterns, error.topic):
                raise
            # It was deleted since the topics were looked at.
            check_what_is_there(definition, state, log, properties, clock.now_ms(), seconds)
        policy = BadRecordsPolicy.of(definition, settings.table(name))
        check_dead_letter_topic(policy, log)
        client_config, registry = settings.kafka.client_config(), settings.registry.client()
        return cls(settings, claim, log, client_config, registry, policy)


def checked_definition(definition: LiveTable, settings: Settings, name: str) -> LiveTable:
    """The table's definition. Raises `DefinitionDiffers` where the configuration says something else."""
    wanted = with_evolved(settings.table(name).definition(name, definition), definition)
    differences = definition.differences(wanted)
    if differences:
        raise DefinitionDiffers(table=name, differences=differences)
    return definition
