"""Tables of tests on the shared stack, ingested for real, and who asks their views."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import trino.dbapi
from trino.exceptions import TrinoQueryError

from tests.behaviour.live import APPEND_TIME, KEYED, Live, Rows, wait_for
from tests.views.stacked.started import MARGIN_SECONDS
from thermocline.dev.oracle import Oracle, RowKey, row_of
from thermocline.dev.stack import Command, Stack
from thermocline.iceberg.catalog import state_of
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam
from thermocline.views.access import Names
from thermocline.views.publication import Publication
from thermocline.views.publish import PublishRound

ANALYST = "ana"
PUBLISHER = Names().publisher
MODES = ("live", "live_by_key", "cold")


def ask(stack: Stack, sql: str, user: str = ANALYST) -> list[tuple[Any, ...]]:
    """The rows that a query gives to a user."""
    assert stack.trino is not None
    connection = trino.dbapi.connect(host=stack.trino.host, port=stack.trino.port, user=user)
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Written:
    """One acknowledged record: what it says of its row, and where and when the broker appended it."""

    key: RowKey
    value: str | None
    partition: int
    offset: int
    timestamp_ms: int


def history(oracle: Oracle) -> list[Written]:
    """All that was acknowledged, partition by partition in the order of the offsets."""
    found = []
    for record in oracle.records():
        key, row = row_of(record)
        value = None if row is None else row["value"]
        found.append(Written(key, value, record.partition, record.offset, record.timestamp_ms))
    return found


def replay(records: Iterable[Written], counts: Callable[[Written], bool] = lambda _: True) -> Rows:
    """The rows after those of the records that count. Each key has all of its records in one partition."""
    rows: Rows = {}
    for record in records:
        if counts(record):
            rows.pop(record.key, None)
            if record.value is not None:
                rows[record.key] = record.value
    return rows


class Viewed(Live):
    """A table with views, beside its topic; published when a test says so."""

    def __init__(self, stack: Stack, name: str, partitions: int = 2, more: str = "", **config: str) -> None:
        self._publication: Publication | None = None
        topic = {setting.replace("_", "."): value for setting, value in config.items()}
        choices = f"{KEYED}\nformat_version = 2\n{more}"
        super().__init__(stack, name, partitions, {**APPEND_TIME, **topic}, choices)

    def start(self, *arguments: str) -> Command:
        """A command as a process."""
        log_path = self.stack.folder / f"{self.name}-{arguments[0]}.log"
        return Command(self.config_path, log_path, *arguments)

    def publish(self) -> PublishRound:
        """As ingest does after a commit."""
        self._publication = self._publication or Publication(self.settings, self.name, SystemClock())
        return self._publication()

    def view(self, mode: str) -> str:
        return f"lake.app.{self.name}_{mode}"

    def ask(self, mode: str, where: str = "true") -> Rows:
        """The rows that an analyst sees."""
        found = ask(self.stack, f"SELECT app_id, user_id, key, value FROM {self.view(mode)} WHERE {where}")
        rows: Rows = {(app_id, user, key): value for app_id, user, key, value in found}
        assert len(rows) == len(found), "a key stands in two rows"
        return rows

    def written(self, end: Seam | None = None) -> Rows:
        """The rows as of those offsets, or of all that was acknowledged."""
        return {key: row["value"] for key, row in self.topic.oracle.rows(end).items()}

    def check(self) -> dict[str, int]:
        """Each view is right: those of the log as of now, the cold one as of its snapshot; by mode, of which
        snapshot each is.
        """
        assert self.ask("live_by_key") == self.written()
        shown = self.shown()
        assert self.ask("cold") == self.written(self.seam_of(shown["cold"]))
        time.sleep(MARGIN_SECONDS)  # cheaper than to find that a record is missing, and to ask again
        wait_for(
            lambda: self.ask("live") == self.written()
        )  # the broker's clock, and when Trino begins, are not ours
        return shown

    def refusal(self, mode: str, where: str = "true") -> str:
        """Why a view does not answer; empty where it does."""
        try:
            self.ask(mode, where)
        except TrinoQueryError as error:
            return str(error.message)
        return ""

    def comments(self) -> dict[str, dict[str, Any]]:
        """By mode, what each view says of itself; nothing of one that is not there."""
        sql = (
            "SELECT table_name, comment FROM system.metadata.table_comments WHERE catalog_name = 'lake' "
            f"AND schema_name = 'app' AND table_name = '{self.name}_%s'"
        )
        found = ask(self.stack, " UNION ALL ".join(sql % mode for mode in MODES), PUBLISHER)
        return {
            view.removeprefix(f"{self.name}_"): json.loads(comment)["thermocline"] for view, comment in found
        }

    def shown(self) -> dict[str, int]:
        """By mode, the snapshot that each view is of."""
        return {mode: int(said["snapshot_id"]) for mode, said in self.comments().items()}

    def seam_of(self, snapshot_id: int) -> Seam:
        snapshot = self.table().snapshot_by_id(snapshot_id)
        assert snapshot is not None
        return state_of(snapshot, self.name).seam
