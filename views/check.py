"""Checks of a table's topics, of Trino and of the views, each with the command that mends what it finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.errors import ThermoclineError, TrinoUnreachable
from thermocline.iceberg.catalog import current_state, definition_of
from thermocline.process.clock import iso_time
from thermocline.rules.identity import kept_ms, promised_ms
from thermocline.views.facts import look
from thermocline.views.publish import find_views
from thermocline.views.readable import unreadable_in_sql
from thermocline.views.topics import SCHEMA, table_name
from thermocline.views.view_status import standing_views

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.kafka.log import Log
    from thermocline.process.clock import Clock
    from thermocline.settings import Settings
    from thermocline.views.facts import TableFacts
    from thermocline.views.trino_client import Trino

__all__ = ["ViewCheck", "check_table", "check_topics", "check_trino", "check_views", "format_problem"]

INTERVALS_KEPT_MIN: Final = 10
"""A topic that keeps records for less than so many commit intervals ends its views after the first hiccup."""
KEPT_MS_ADVISED: Final = 604_800_000
LAG_MS_ADVISED: Final = 86_400_000
FORMAT_3: Final = 3
READS_FORMAT_3_FROM: Final = 480
"""The Trino from which on deletion vectors are read; seen to on 483, and not to on 476."""

_ENDS: Final = "the live view has literal ends"
_NO_PROMISE: Final = (
    "retention.ms goes by the times that producers give, so views end soon after ingest does (where these "
    "must stay, message.timestamp.before.max.ms bounds how old they may be: the broker refuses older records)"
)
_NO_LAG: Final = (
    "min.compaction.lag.ms goes by the times that producers give, so no view can have literal ends or be "
    "pinned (where these must stay, message.timestamp.before.max.ms bounds how old they may be)"
)


@dataclass(frozen=True, slots=True)
class ViewCheck:
    """One thing that was looked at; ``fix`` is empty where it is as it must be."""

    subject: str
    found: str
    fix: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing needs to be done."""
        return not self.fix


def check_table(
    settings: Settings, name: str, table: Table, log: Log, trino: Trino, clock: Clock
) -> Iterator[ViewCheck]:
    """Everything, the topics first. Raises `TrinoUnreachable` last of all that can be said without Trino."""
    try:
        facts = look(table, name, log, clock)
        yield ViewCheck("log", f"holds all from the seam of snapshot {facts.state.snapshot_id} on")
        yield from check_topics(settings, facts)
    except TrinoUnreachable:
        raise
    except ThermoclineError as error:
        yield ViewCheck(
            "log", f"[{error.code}] {error.what}", error.next or f"thermocline explain {error.code}"
        )
    yield from check_trino(settings, name, table.format_version, trino)
    yield from check_views(settings, name, table, trino, clock)


def check_topics(settings: Settings, facts: TableFacts) -> Iterator[ViewCheck]:
    """The settings that views hang on, of each topic."""
    is_served = settings.views.hot == "server"
    unreadable = None if is_served else unreadable_in_sql(facts.definition)
    if unreadable is not None:
        yield ViewCheck("records", f"{unreadable}: only the view of the rows as committed is made")
    interval_ms = round(settings.table(facts.definition.name).commit_interval_seconds * 1000)
    if facts.definition.has_key and not is_served:
        yield _transactions(facts)
    shortest_ms = INTERVALS_KEPT_MIN * interval_ms
    for topic in facts.definition.topics:
        yield from _TopicChecks(settings, facts, topic, shortest_ms).all()


@dataclass(frozen=True, slots=True)
class _TopicChecks:
    """The checks of one topic. Within ``shortest_ms`` it may lose nothing."""

    settings: Settings
    facts: TableFacts
    topic: str
    shortest_ms: int

    def all(self) -> Iterator[ViewCheck]:
        retention = self.facts.retentions[self.topic]
        is_served = self.settings.views.hot == "server"
        costs = [] if is_served else list(_costs_of_producers_times(self.facts, self.topic))
        is_appended = self.facts.configs[self.topic].is_log_append_time
        found = "LogAppendTime" if is_appended else ": ".join(["CreateTime", *costs])
        yield self._check("message.timestamp.type", found, "LogAppendTime", bool(costs))
        kept = retention.kept_ms
        is_short = kept is not None and kept < self.shortest_ms
        yield self._check(
            "retention.ms", "no limit" if kept is None else f"{kept:,}", KEPT_MS_ADVISED, is_short
        )
        limited = retention.is_limited_by_size
        limit = "limited" if is_served else "limited: views end soon after ingest does"
        yield self._check("retention.bytes", limit if limited else "no limit", -1, limited)
        if retention.compaction_lag_ms is not None:
            yield from self._of_compaction(retention.compaction_lag_ms)

    def _of_compaction(self, lag_ms: int) -> Iterator[ViewCheck]:
        if self.facts.definition.has_key:
            config = self.facts.configs[self.topic]
            is_short = kept_ms(config) < self.shortest_ms
            found = f"{config.delete_retention_ms:,}"
            yield self._check("delete.retention.ms", found, KEPT_MS_ADVISED, is_short)
        is_short = lag_ms < self.shortest_ms
        costs = ": views with literal ends and pinned views don't live longer" if is_short else ""
        yield self._check("min.compaction.lag.ms", f"{lag_ms:,}{costs}", LAG_MS_ADVISED, is_short)

    def _check(self, setting: str, found: str, advised: object, is_bad: bool) -> ViewCheck:
        fix = _alter(self.settings, self.topic, f"{setting}={advised}") if is_bad else ""
        return ViewCheck(f"{self.topic}: {setting}", found, fix)


def _transactions(facts: TableFacts) -> ViewCheck:
    """Whether the definition says what its producers do."""
    name = facts.definition.name
    if facts.definition.transactional or not facts.shows_transactions:
        return ViewCheck("transactions", "as defined" if facts.definition.transactional else "no sign of any")
    fix = f"set transactional = true in [tables.{name}], stop ingest, thermocline table alter {name}"
    return ViewCheck("transactions", f"producers use them, and the definition does not say so: {_ENDS}", fix)


def _costs_of_producers_times(facts: TableFacts, topic: str) -> Iterator[str]:
    """What another `message.timestamp.type` would spare the views."""
    if facts.configs[topic].is_log_append_time:
        return
    if facts.definition.has_key and not facts.is_transactional:
        yield _ENDS
    retention = facts.retentions[topic]
    for kept, words in ((retention.kept_ms, _NO_PROMISE), (retention.compaction_lag_ms, _NO_LAG)):
        if kept and not promised_ms(facts.configs[topic], retention, kept):
            yield words


def check_trino(settings: Settings, name: str, format_version: int, trino: Trino) -> Iterator[ViewCheck]:
    """Whether Trino answers, reads such tables, and has the catalogs and a table for each topic.

    Raises `TrinoUnreachable`.
    """
    views = settings.views
    version = str(trino.rows("SELECT version()")[0][0])
    yield ViewCheck("Trino", f"answers at {trino.url}, version {version}")
    if problem := format_problem(format_version, version):
        advice = f"Trino {READS_FORMAT_3_FROM} or newer; or create the table again with format_version = 2"
        yield ViewCheck("format_version", f"{FORMAT_3}: {problem}", advice)
    catalogs = {row[0] for row in trino.rows("SHOW CATALOGS")}
    for catalog in (views.lake, views.kafka, *([views.live] if views.hot == "server" else [])):
        yield _configured(f"catalog {catalog}", catalog in catalogs, "there", "not there")
    if views.kafka in catalogs:
        listed = trino.rows(f'SHOW TABLES FROM "{views.kafka}"."{SCHEMA}"')
        tables = {row[0] for row in listed}
        for topic in settings.table(name).topic_names:
            yield _configured(f"topic {topic}", table_name(topic) in tables, "a table", "no table")


def _configured(subject: str, is_there: bool, there: str, missing: str) -> ViewCheck:
    advice = "thermocline views config DIR, copy it into Trino's etc, and start Trino again"
    return ViewCheck(subject, there) if is_there else ViewCheck(subject, missing, advice)


def format_problem(format_version: int, version: str) -> str:
    """Why that Trino can't read such a table; empty where it can, or where its version is no number."""
    number = re.match(r"\d+", version)
    is_old = number is not None and int(number[0]) < READS_FORMAT_3_FROM
    if format_version != FORMAT_3 or not is_old:
        return ""
    return f"Trino {version} can't read its deletes, queries fail with `Unexpected PUFFIN file format`"


def check_views(
    settings: Settings, name: str, table: Table, trino: Trino, clock: Clock
) -> Iterator[ViewCheck]:
    """What each view reflects."""
    definition, state = definition_of(table, name), current_state(table, name)
    found = find_views(settings, name, trino)
    newest_id, hot = state.snapshot_id, settings.views.hot
    for one in standing_views(settings.table(name), definition, newest_id, found, clock.now_ms(), hot):
        ends = f", ends at {one.ends_at}" if one.ends_at else ""
        of = "" if one.snapshot_id is None else f" (snapshot {one.snapshot_id}{ends})"
        newest = f"as of the newest snapshot, of {iso_time(state.timestamp_ms)}"
        words = one.problem or ("as of now" if one.snapshot_id is None else newest)
        fix = f"thermocline views publish {name}" if one.problem else ""
        if one.is_withdrawn:
            fix += "      (after fixing the log, as shown above)"
        yield ViewCheck(f"view {one.view}", f"{words}{of}", fix)


def _alter(settings: Settings, topic: str, setting: str) -> str:
    servers = settings.kafka.bootstrap_servers
    return (
        f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {setting}"
    )
