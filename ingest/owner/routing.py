"""A route's directory, as its owner keeps it: tables of new values are made before their batch lands.

A value that first comes in a batch, which begins at the directory's seam, gets a table that begins there.
Then the batch lands, with the directory that names the table. So no record of a value is missed: what comes
before the seam that its table begins with has other values. A crash between leaves a table that the next
attempt takes as it is.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from thermocline.errors import RegistryUnreachable, ThermoclineError, first_line
from thermocline.iceberg.catalog import DELETED_PROPERTY, HELD_PROPERTY, ROUTED_PROPERTY
from thermocline.iceberg.routed_tables import directory_in
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import landed
from thermocline.ingest.commit.rotation import given_up_ends
from thermocline.ingest.owner import measures
from thermocline.ingest.table.routed import TableMaker
from thermocline.process.logs import fields
from thermocline.rules.routes.directory import Beginning, Directory
from thermocline.rules.routes.names import is_denied
from thermocline.rules.topic_patterns import finds, found_by_pattern
from thermocline.settings.route import DirectorySettings

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.batch.batch import BatchResult
    from thermocline.ingest.batch.read_task import ReadTask
    from thermocline.ingest.owner.owner import Owner
    from thermocline.ingest.table.routed import Made
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.routes.own_columns import FirstSchema
    from thermocline.settings import Settings
    from thermocline.settings.route import RouteSettings

__all__ = ["Routing", "routing_of"]

RETRY_SECONDS: Final = 60.0
"""What keeps a table from being made, such as another one of its name, somebody has to see and change."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Routing:
    """What one owner of a directory knows and makes. ``on_made`` hears of tables once the directory has them.

    Whenever the directory is read again, it hears of all: a commit may have landed of which nobody knew.
    ``directory`` is as it was last committed; ``chosen`` are the values that take the last places.
    """

    name: str
    route: RouteSettings
    maker: TableMaker
    directory: Directory
    on_made: Callable[[Sequence[str]], None] = lambda _: None
    retry_at: float = float("-inf")
    chosen: tuple[str, ...] = ()
    _made_before: set[str] | None = None
    _next: Directory | None = None
    _outcomes: Counter[str] = field(default_factory=Counter)
    _was_full: bool = False

    def reading(self, task: ReadTask) -> ReadTask:
        """The task of a batch that is to be read by what is known now."""
        admission = self.directory.admission(self.route.denied, self.route.tables_max, self.chosen)
        return replace(task, admission=admission)

    def has_room(self, result: BatchResult) -> bool:
        """Whether there is room for all values that came; if not, the batch is to be read again.

        Then the values that get the last places are known, and the records of the others are refused. Values
        whose table a batch that didn't land had made come first, so that no table is left without an owner.

        Raises `CatalogUnreachable`.
        """
        came = _came(result)
        if came and self._made_before is None:
            self._made_before = self._look_for_tables()
        self.chosen = self.directory.admitted(came, self.route.tables_max, self._made_before or ())
        return came.issubset(self.chosen)

    def to_commit(self, owner: Owner, result: BatchResult) -> dict[str, str]:
        """Makes the tables of the values that came; gives the property that has them, for their batch."""
        self._outcomes = _outcomes(result)
        came, firsts = {*_came(result), *self.chosen}, _firsts(result)
        self._next = None
        here = _here(owner)
        wanted = [_Wanted(value, here, firsts.get(value)) for value in sorted(came)]
        for value, failed in self.directory.failed.items():
            is_named = failed.first is None and value in firsts
            if is_named and not is_denied(value, self.route.denied):
                wanted.append(_Wanted(value, failed.since, firsts[value]))
        if wanted:
            self._next = self._made(owner, self.directory, wanted)
        self.chosen = ()
        return {} if self._next is None else {ROUTED_PROPERTY: self._next.to_json()}

    def landed(self) -> None:
        """The batch landed, and with it the directory."""
        measures.routed(self.name, self._outcomes)
        self._say_full()
        self._take_up()

    def look(self, owner: Owner) -> None:
        """Tries again to make tables that could not be made, where it is time; commits what came of it.

        Before a topic that came is read, the values that wait know it: their records may be in it.
        """
        self._next, self.chosen = None, ()
        if not self.directory.failed:
            return
        tried = self.directory.knowing(_here(owner))
        now = owner.clock.monotonic()
        if now >= self.retry_at:
            self.retry_at = now + RETRY_SECONDS
            tried = self._tried(owner, tried)
        if tried == self.directory:
            return
        self._next = tried
        change = TableChange.carrying_on(owner.position)
        landed(owner.land(replace(change, properties={ROUTED_PROPERTY: tried.to_json()})))
        self._take_up()

    def reload(self, table: Table) -> None:
        """The directory as its table has it."""
        self.directory, self._next, self.chosen = directory_in(table.properties, self.name), None, ()
        measures.route_known(self.name, len(self.directory.names), len(self.directory.failed))
        self.on_made(tuple(self.directory.names))  # safety: routed-read-again

    def _take_up(self) -> None:
        if self._next is None:
            return
        measures.route_known(self.name, len(self._next.names), len(self._next.failed))
        new = [value for value in self._next.names if value not in self.directory.names]
        self.directory, self._next = self._next, None
        if new:
            self.on_made(new)

    def _made(self, owner: Owner, known: Directory, wanted: Iterable[_Wanted]) -> Directory:
        for one in wanted:
            owner.lease.check()
            made = self._make(owner, known, one)
            if isinstance(made, str):
                known = known.without_table(one.value, made, one.since, one.first)
                continue
            known = known.with_table(one.value, made.own)
            if self._made_before is not None:
                self._made_before.add(one.value)
        return known

    def _tried(self, owner: Owner, known: Directory) -> Directory:
        """What comes of another try to make the tables of values that wait."""
        waiting = [
            _Wanted(value, failed.since, failed.first)
            for value, failed in known.failed.items()
            if not is_denied(value, self.route.denied)
        ]
        try:
            return self._made(owner, known, waiting)
        except RegistryUnreachable as error:  # what is made already is taken as it is the next time
            extra = fields(route=self.name, code=error.code, detail=str(error))
            _logger.warning("tables of waiting values can't be made now; will try again", extra=extra)
            return known

    def _look_for_tables(self) -> set[str]:
        found = self.maker.made_before(self.directory)
        if found:
            extra = fields(route=self.name, values=list(found), tables_max=self.route.tables_max)
            _logger.info("tables of a batch that did not land are there, and go before others", extra=extra)
        return set(found)

    def _make(self, owner: Owner, known: Directory, wanted: _Wanted) -> Made | str:
        """Makes a value's table; why it can't be made, if it can't.

        Raises `RegistryUnreachable`, which says nothing about the value.
        """
        value, since = wanted.value, wanted.since
        reads = _with_deleted(owner.definition, since)
        topics = frozenset(reads.topics)
        start = replace(
            TableChange.carrying_on(owner.position),
            seam=since.seam.only(topics),  # safety: routed-from-first-seen
            # If a topic was recreated since, it is for the table's own checks to say so.
            cluster_id=since.cluster_id,  # safety: routed-cluster-of-then
            # safety: routed-ids-of-then
            topic_ids={topic: id_ for topic, id_ in since.topic_ids.items() if topic in topics},
            partition_times=since.partition_times,
            drained_ms=since.drained_ms,
            watermark_ms=-1,
            properties=_known_ends(owner, since, reads),
        )
        extra = fields(route=self.name, value=value)
        try:
            made = self.maker.make(value, reads, start, wanted.first)
        except RegistryUnreachable:
            raise  # safety: schema-registry-waits
        except ThermoclineError as error:
            if known.failed.get(value) is None or known.failed[value].reason != error.what:
                said = {**extra, **fields(code=error.code, detail=error.what, next=error.next)}
                _logger.error("the table of a value can't be made; its records wait", extra=said)  # noqa: TRY400
            return error.what
        except Exception as bug:
            _logger.exception("the table of a value can't be made; its records wait", extra=extra)
            return f"{type(bug).__name__}: {first_line(bug)}"
        _logger.info("the table of a value is made", extra={**extra, **fields(table=made.table)})
        return made

    def _say_full(self) -> None:
        beyond = self._outcomes["beyond"]
        if beyond and not self._was_full:
            self._was_full = True
            extra = fields(route=self.name, tables_max=self.route.tables_max, records=beyond)
            _logger.warning(
                "values beyond tables_max get no table; raise routes.NAME.tables_max", extra=extra
            )


def routing_of(settings: Settings, name: str, table: Table, jvm: object) -> Routing | None:
    """How the owner of a directory makes tables; None of any other table."""
    if not isinstance(settings.tables[name], DirectorySettings):
        return None
    maker = TableMaker(settings, name, table.catalog, jvm)
    routing = Routing(name, settings.routes[name], maker, Directory())
    routing.reload(table)
    return routing


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A value that is to get its table, from where on, and what its first record names."""

    value: str
    since: Beginning
    first: FirstSchema | None = None


def _firsts(result: BatchResult) -> dict[str, FirstSchema]:
    """By value, what the first record of all tasks names."""
    found: dict[str, FirstSchema] = {}
    for report in result.reports:
        for value, first in report.first_schemas.items():
            found[value] = min(first, found.get(value, first))
    return found


def _here(owner: Owner) -> Beginning:
    """The place in the log where the directory is."""
    at = owner.position
    return Beginning(at.seam, at.partition_times, at.drained_ms, at.cluster_id, dict(at.topic_ids))


def _with_deleted(definition: LiveTable, since: Beginning) -> LiveTable:
    """The directory's definition, with topics that were deleted since a value came.

    The directory had all of them, and the value's table has not: it is for its own checks to say so.
    """
    deleted = (topic for topic in since.topic_ids if topic not in definition.topics)
    found = [topic for topic in deleted if finds(definition.topic_patterns, topic)]
    return replace(definition, topics=(*definition.topics, *found)) if found else definition


def _known_ends(owner: Owner, since: Beginning, reads: LiveTable) -> dict[str, str]:
    """The properties by which a value's table finds that it lacks records of a topic that was deleted.

    They say how far the directory was in each, and that the time alone says of none that the table has all.
    """
    if not reads.topic_patterns:
        return {}
    found = found_by_pattern(reads)
    read = given_up_ends({**owner.table.properties, **owner.topics.properties}, since.topic_ids)
    ends = read.merged_max(owner.position.seam).only(frozenset(found))
    # safety: routed-deleted-topics
    return {DELETED_PROPERTY: ends.to_json(), HELD_PROPERTY: json.dumps(sorted(found))}


def _came(result: BatchResult) -> set[str]:
    return {value for report in result.reports for value in report.new_values}


def _outcomes(result: BatchResult) -> Counter[str]:
    found: Counter[str] = Counter()
    for report in result.reports:
        found.update(report.outcomes)
    return found
