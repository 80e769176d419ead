"""The watch for writers' schemas that differ from the table's definition, by the table's contract.

Read tasks say which schemas a batch's records name, and what fields its JSON has. Before the batch commits,
the owner judges each schema, once under each version of the definition: it stops at some changes, and takes
others up, all of the batch together, by one commit of the schema. Then the batch is read again, so no record
waits longer than its batch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from thermocline.errors import SchemaStopped
from thermocline.iceberg.alterations import NotedAlteration, NotedCause, with_alteration
from thermocline.iceberg.catalog import CONTRACT_SAMPLE_PROPERTY, SUMMARY_SCHEMA_CAUSE
from thermocline.iceberg.earlier_columns import dropped_paths
from thermocline.ingest.batch.met_schemas import Met, MetSchema
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import landed
from thermocline.ingest.table.alter import altering
from thermocline.process.logs import fields
from thermocline.rules.contract.changes import judged_parts, modes_of, schema_changes
from thermocline.rules.contract.evolving import Evolution, evolved
from thermocline.rules.contract.modes import Mode
from thermocline.rules.contract.sampled import SampledFields, evolves_by_sample
from thermocline.rules.decode.framing import schema_id

if TYPE_CHECKING:
    from thermocline.ingest.batch.batch import BatchResult
    from thermocline.ingest.batch.read_task import ReadReport
    from thermocline.ingest.owner.owner import Owner
    from thermocline.rules.contract.changes import SchemaChange
    from thermocline.rules.definition import LiveTable

__all__ = ["Cause", "SchemaWatch"]

SAID_MAX: Final = 1_000
"""Changes that are logged: schemas of a topic can differ without end."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cause:
    """What made a table change: a record's schema, or a sample of JSON, in which case there is no schema.

    ``named`` is what the registry calls the schema.
    """

    changes: tuple[SchemaChange, ...]
    record: MetSchema | None = None
    schema: str = ""
    named: str = ""

    def to_document(self) -> dict[str, object]:
        """As the snapshot's summary has it."""
        found: dict[str, object] = {"changes": [str(change) for change in self.changes]}
        if self.record is None:
            return found | {"by": "a sample of values"}
        place = {"topic": self.record.topic, "partition": self.record.partition, "offset": self.record.offset}
        return found | place | {"part": self.record.part, "schema": self.schema, "named": self.named}

    def noted(self) -> NotedCause:
        """As the table notes it."""
        columns = tuple(dict.fromkeys(change.column for change in self.changes))
        if self.record is None:
            return NotedCause(columns)
        return NotedCause(columns, str(self.record), self.record.part, self.schema, self.named)


@dataclass(slots=True)
class SchemaWatch:
    """What one owner knows of its writers' schemas. Does nothing where the contract has nothing to judge."""

    judged: set[tuple[int, str, bytes]] = field(default_factory=set)
    sampled: SampledFields | None = None
    next_sampled: SampledFields | None = None
    properties: dict[str, str] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)

    def takes_up(self, owner: Owner, result: BatchResult) -> bool:
        """Whether the table took up changes that a batch met, so that the batch has to be read again.

        Raises what `planned` and `take_up` raise; the files of the batch are deleted then.
        """
        with owner.leaving(result):
            evolution, causes = self.planned(owner, result.reports)
        if evolution.alteration is None:
            return False
        owner.leave(result)
        self.take_up(owner, evolution, causes)
        return True

    def took_up(self, owner: Owner, result: BatchResult) -> None:
        """The batch was read again: what is left of its changes is judged, too.

        Raises what `planned` raises; the files of the batch are deleted then.
        """
        with owner.leaving(result):  # safety: read-again-leaves-no-file
            self.planned(owner, result.reports)

    def planned(self, owner: Owner, reports: Sequence[ReadReport]) -> tuple[Evolution, tuple[Cause, ...]]:
        """What the table takes up of what a batch met, and why.

        Raises:
            SchemaStopped: the contract stops at a schema that the batch met.
            RegistryUnreachable: a schema can't be asked for now.
        """
        definition = owner.definition
        causes = [
            cause
            for met in Met().first_schemas(report.met for report in reports)
            if (cause := self._cause(owner, met)) is not None
        ]
        if evolves_by_sample(definition):
            self.next_sampled = self._so_far(owner).plus((one.met.fields for one in reports), definition)
            by_sample = tuple(self.next_sampled.changes(definition))
            causes += [Cause(by_sample)] if by_sample else []
        changes = [change for cause in causes for change in cause.changes]
        if not changes:
            return Evolution(), ()
        dropped = dropped_paths(owner.table.properties, definition)  # safety: dropped-stays-dropped
        found = evolved(definition, changes, owner.table.metadata.last_column_id, dropped)
        for change, why in found.passed_over:
            self._say_once(owner, change, why)
        taken = set(found.taken)
        for cause in causes:
            # Of others, a commit comes first, which may be rejected.
            # safety: contract-judged-when-done
            if cause.record is not None and not taken.intersection(cause.changes):
                self.judged.add(_judged(definition, cause.record))
        return found, tuple(
            replace(cause, changes=tuple(one for one in cause.changes if one in taken))
            for cause in causes
            if taken.intersection(cause.changes)
        )

    def take_up(self, owner: Owner, evolution: Evolution, causes: Sequence[Cause]) -> None:
        """Commit the definition that follows. Raises what stops the commit."""
        planned = evolution.alteration
        assert planned is not None
        change = TableChange.carrying_on(owner.position)
        noted = NotedAlteration(
            planned.definition.version,
            owner.clock.now_ms(),
            change.batch_id,
            tuple(planned.changes),
            tuple(one.noted() for one in causes),
        )
        known = {**owner.table.properties, **self.properties}
        change = replace(
            change,
            alter=altering(owner.engine.jvm, owner.definition, planned),
            definition=planned.definition,
            properties=with_alteration(known, noted),
            summary={SUMMARY_SCHEMA_CAUSE: json.dumps([one.to_document() for one in causes])},
        )
        done = landed(owner.land(change))  # safety: contract-before-the-batch
        self.properties |= change.properties
        _logger.info(
            "the table took up changes of its writers' schemas",
            extra=fields(
                table=planned.definition.name,
                version=planned.definition.version,
                changes="; ".join(noted.sentences),
                snapshot_id=done.snapshot_id,
            ),
        )

    def to_commit(self, owner: Owner) -> dict[str, str]:
        """The properties that a batch commits."""
        if self.next_sampled is None or self.next_sampled == self._so_far(owner):
            return {}
        return {CONTRACT_SAMPLE_PROPERTY: self.next_sampled.to_json()}

    def landed(self) -> None:
        """That batch has landed: only then does what it had count, since a rejected one is read again."""
        self.sampled = self.next_sampled or self.sampled

    def _so_far(self, owner: Owner) -> SampledFields:
        if self.sampled is None:
            self.sampled = SampledFields.of_json(owner.table.properties.get(CONTRACT_SAMPLE_PROPERTY, ""))
        return self.sampled

    def _cause(self, owner: Owner, met: MetSchema) -> Cause | None:
        """What the table is to take up of a schema; None where there is nothing, as where it was judged."""
        definition = owner.definition
        part = next((one for one in judged_parts(definition) if one.name == met.part), None)
        if _judged(definition, met) in self.judged or part is None or owner.task.registry is None:
            return None
        registry, id_ = owner.task.registry, schema_id(met.head)
        changes = schema_changes(definition, part, registry.of(id_), met.head)
        by_mode: dict[Mode, list[SchemaChange]] = {mode: [] for mode in Mode}
        for change, mode in modes_of(definition, changes, part):
            by_mode[mode].append(change)
        if by_mode[Mode.STOP]:  # safety: contract-stops
            named = registry.named(id_)
            raise SchemaStopped(
                table=definition.name,
                schema=f"{id_}{named and f' ({named})'}",
                part=met.part,
                record=str(met),
                changes=tuple(map(str, by_mode[Mode.STOP])),
            )
        for change in by_mode[Mode.IGNORE]:
            self._say_once(owner, change, f"the contract says {change.kind} = ignore")
        taken = tuple(by_mode[Mode.EVOLVE])
        if not taken:
            self.judged.add(_judged(definition, met))
            return None
        return Cause(taken, met, str(id_), registry.named(id_))

    def _say_once(self, owner: Owner, change: SchemaChange, why: str) -> None:
        words = f"{change}: {why}"
        if words in self.said or len(self.said) >= SAID_MAX:
            return
        self.said.add(words)
        extra = fields(table=owner.definition.name, change=str(change), reason=why)
        _logger.info("a change of a writer's schema is not taken up", extra=extra)


def _judged(definition: LiveTable, met: MetSchema) -> tuple[int, str, bytes]:
    return definition.version, met.part, met.head
