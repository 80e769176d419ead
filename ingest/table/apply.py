"""Tables made as the file says: what is to be done of each, and then that, and nothing else.

A table that isn't there is created, one that differs is altered, by the rules of `alter`: all of its
differences or none of them. Nothing is ever dropped: what the file doesn't mention is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from thermocline.errors import AlterationRefused, ThermoclineError
from thermocline.iceberg.catalog import catalog_if_any, find_table
from thermocline.ingest.table.alter import alter_table
from thermocline.ingest.table.create import create_table, planned_creation

if TYPE_CHECKING:
    from thermocline.ingest.claim.lease import Say
    from thermocline.process.clock import Clock
    from thermocline.rules.alteration import Alteration
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

__all__ = ["Action", "Step", "do_step", "planned_steps"]

Action = Literal["create", "alter", "nothing", "by hand", "stopped"]


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done of a table, in sentences.

    ``error`` is why nothing can be: no alteration leads there, so it is by hand, or something stops it now.
    """

    table: str
    identifier: str
    action: Action
    changes: tuple[str, ...] = ()
    agreed: Alteration | None = None
    created: LiveTable | None = None
    error: ThermoclineError | None = None

    @property
    def is_done(self) -> bool:
        """Whether carrying it out writes anything."""
        return self.action in ("create", "alter")


def planned_steps(settings: Settings, names: Sequence[str], clock: Clock) -> list[Step]:
    """A step for each table, in the order of the names. Writes nothing.

    What stops one table is its step's error. Raises `CatalogUnreachable`, which stops all.
    """
    catalog = catalog_if_any(settings.catalog) if names else None
    steps = []
    for name in names:
        definition = settings.table(name).definition(name)
        is_there = catalog is not None and find_table(catalog, definition.identifier) is not None
        steps.append(_step(settings, definition, clock, is_there))
    return steps


def do_step(settings: Settings, step: Step, clock: Clock, say: Say) -> None:
    """Carry out what a step says; all of it or nothing.

    Raises what `create_table` and `alter_table` raise, and `NotConfirmed` where the table is not any more as
    it was when the step was planned.
    """
    if step.action == "create":
        create_table(settings, step.table, step.created)
    elif step.action == "alter":
        alter_table(settings, step.table, clock, say=say, agreed=step.agreed)


def _step(settings: Settings, definition: LiveTable, clock: Clock, is_there: bool) -> Step:
    name, identifier = definition.name, definition.identifier
    try:
        if not is_there:
            definition = planned_creation(settings, definition).definition or definition
            made = tuple(_created(definition, settings.table(name).start))
            return Step(name, identifier, "create", made, created=definition)
        altered = alter_table(settings, name, clock, dry_run=True)
    except AlterationRefused as error:
        return Step(name, identifier, "by hand", error.problems, error=error)
    except ThermoclineError as error:
        return Step(name, identifier, "stopped", error=error)
    if not altered.changes:
        return Step(name, identifier, "nothing")
    return Step(name, identifier, "alter", altered.changes, altered)


def _created(definition: LiveTable, start: str) -> Iterator[str]:
    """What a new table is, in sentences."""
    columns = ", ".join(f"{column.name} {column}" for column in definition.columns)
    yield f"columns: {columns}"
    yield f"key: {', '.join(definition.key) or 'none: every record adds a row'}"
    by = definition.bucket_column.name
    yield f"partitions: {definition.buckets} buckets by {by}, format version {definition.format_version}"
    yield f"reads {', '.join(definition.topics)} from {start}"
