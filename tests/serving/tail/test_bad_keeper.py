"""What a server knows of a quarantine: its newest records in groups, read while somebody looks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.manual_clock import ManualClock
from tests.serving.small_lake import create_table, lake_settings
from thermocline.iceberg import catalog as catalogs
from thermocline.iceberg import newest_rows as reading
from thermocline.iceberg.newest_rows import newest_rows
from thermocline.ingest.quarantine import (
    SCHEMA,
    SeenRecords,
    create_quarantine,
    keep_files,
    open_quarantine,
    remove,
    write_quarantine_file,
)
from thermocline.serving.tail import bad_keeper
from thermocline.serving.tail.bad_facts import BadFacts, BadGroup, read_bad_facts
from thermocline.serving.tail.bad_keeper import BadKeeper
from thermocline.serving.tail.follower import CatalogTable

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
BEGAN_MS = 1_772_323_200_000
SECRET = 'not one JSON object: it begins "my password"'
WRONG = "note (string): Expected `str | null`, got `int`"


@pytest.fixture
def lake(tmp_path: Path) -> SimpleNamespace:
    settings = lake_settings(tmp_path, "orders")
    create_table(settings, "orders")
    catalog = catalogs.open_catalog(settings.catalog)
    create_quarantine(catalog, "app.orders")
    table = catalogs.open_table(settings, "orders")
    folder = tmp_path / "orders"
    folder.mkdir()
    clock = ManualClock()

    def quarantine(*records: tuple[int, str], stage: str = "decode") -> None:
        companion = open_quarantine(catalog, "orders", "app.orders")
        keep_files(
            companion, [write_quarantine_file(companion.io, companion.location(), [rows(records, stage)])]
        )

    def looked(run: Callable[[Callable[[], None]], None] = lambda work: work()) -> BadFacts | None:
        companion = CatalogTable(settings.catalog, "orders", "app.orders_quarantine")
        BadKeeper(folder, companion, clock, run).look(table)
        return read_bad_facts(folder)

    def want() -> None:
        (folder / "wanted-closely").touch()
        at = clock.now_ms() / 1000
        os.utime(folder / "wanted-closely", (at, at))

    return SimpleNamespace(**locals())


def rows(records: Sequence[tuple[int, str]], stage: str) -> pa.Table:
    made = [
        {
            "topic": "orders",
            "topic_id": "first",
            "partition": 0,
            "offset": offset,
            "timestamp": BEGAN + timedelta(seconds=offset),
            "stage": stage,
            "reason": reason,
            "value": b"my password",
        }
        for offset, reason in records
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def noted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """What a function is called with from now on."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(module, name)

    def noting(*given: Any) -> Any:
        calls.append(given)
        return real(*given)

    monkeypatch.setattr(module, name, noting)
    return calls


def test_records_are_grouped_by_what_is_wrong_with_them(lake: SimpleNamespace) -> None:
    lake.quarantine((3, SECRET), (5, 'not one JSON object: it begins "another"'))
    lake.quarantine((9, WRONG), stage="contract")
    lake.quarantine((7, SECRET), (5, SECRET))  # a repeat, after a crash of ingest
    lake.want()
    facts = lake.looked()
    assert facts.groups == (
        BadGroup(
            "contract", "wrong-type", "note", 1, BEGAN_MS + 9_000, BEGAN_MS + 9_000, "orders/0@9", WRONG
        ),
        BadGroup("decode", "not-json", None, 3, BEGAN_MS + 3_000, BEGAN_MS + 7_000, "orders/0@7", SECRET),
    )
    assert (facts.looked_at, facts.is_all, facts.problem) == (4, True, "")


def test_a_quarantine_is_not_read_before_somebody_looks(lake: SimpleNamespace) -> None:
    lake.quarantine((3, SECRET))
    assert lake.looked() is None
    lake.want()
    lake.clock.advance(61.0)
    assert lake.looked() is None, "that was long ago"
    lake.want()
    assert lake.looked().looked_at == 1


def test_no_more_than_the_newest_files_and_records_of_a_quarantine_are_read(
    lake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = noted(monkeypatch, reading, "open_input")
    monkeypatch.setattr(reading, "FILES_MAX", 2)
    for offset in range(6):
        lake.quarantine((offset, WRONG), (offset + 10, WRONG))
    lake.want()
    facts = lake.looked()
    assert (facts.looked_at, facts.is_all) == (4, False)
    assert len(opened) == 2
    assert facts.groups[0].first_ms == BEGAN_MS + 4_000
    assert facts.groups[0].example == "orders/0@15"

    companion = open_quarantine(lake.catalog, "orders", "app.orders")
    found = newest_rows(companion, ("offset",), rows_max=3)
    assert (sorted(row["offset"] for row in found.rows), found.is_all) == ([4, 5, 15], False)
    monkeypatch.setattr(reading, "FILES_MAX", 6)
    assert newest_rows(companion, ("offset",), rows_max=12).is_all
    monkeypatch.setattr(reading, "MANIFESTS_MAX", 3)
    found = newest_rows(companion, ("offset",), rows_max=12)
    assert (sorted(row["offset"] for row in found.rows), found.is_all) == ([3, 4, 5, 13, 14, 15], False)


def test_values_of_records_are_never_read(lake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = noted(monkeypatch, bad_keeper, "newest_rows")
    lake.quarantine((3, WRONG))
    lake.want()
    lake.looked()
    ((_, columns, _),) = asked
    assert {"key", "value", "headers"}.isdisjoint(columns)


def test_what_left_the_quarantine_is_shown_no_more_and_what_did_not_change_is_not_read_again(
    lake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.quarantine((3, SECRET), (5, SECRET))
    loader = CatalogTable(lake.settings.catalog, "orders", "app.orders_quarantine")
    keeper = BadKeeper(lake.folder, loader, lake.clock, lambda work: work())
    reads = noted(monkeypatch, bad_keeper, "facts_of")

    def looked() -> BadFacts:
        lake.clock.advance(31.0)
        lake.want()
        keeper.look(lake.table)
        keeper.look(lake.table)
        found = read_bad_facts(lake.folder)
        assert found is not None
        return found

    assert looked().looked_at == 2
    again = looked()
    assert (again.looked_at, again.as_of_ms, len(reads)) == (2, lake.clock.now_ms(), 1)
    settled = SeenRecords()
    settled.add("first", 0, 5)
    remove(open_quarantine(lake.catalog, "orders", "app.orders"), settled)
    after = looked()
    assert (after.looked_at, after.groups[0].example, len(reads)) == (1, "orders/0@3", 2)


def test_a_quarantine_that_can_not_be_had_is_said(lake: SimpleNamespace) -> None:
    lake.catalog.drop_table("app.orders_quarantine")
    lake.want()
    assert lake.looked().problem == "the quarantine is missing; ingest makes it again, empty"


class Broken:
    """Fails as nobody expects it."""

    def load(self) -> Table:
        raise KeyError("metadata")

    def reconnect(self) -> None:
        """Nothing that helps."""


def test_a_quarantine_that_fails_in_an_unknown_way_is_said(lake: SimpleNamespace) -> None:
    lake.want()
    BadKeeper(lake.folder, Broken(), lake.clock, lambda work: work()).look(lake.table)
    facts = read_bad_facts(lake.folder)
    assert facts is not None
    assert facts.problem == "the quarantine can't be read: KeyError"


def test_a_look_for_which_there_is_no_thread_is_made_later(lake: SimpleNamespace) -> None:
    lake.quarantine((3, WRONG))
    threads = [False, True]

    def run(work: Callable[[], None]) -> None:
        if not threads.pop(0):
            raise RuntimeError("can't start new thread")
        work()

    companion = CatalogTable(lake.settings.catalog, "orders", "app.orders_quarantine")
    keeper = BadKeeper(lake.folder, companion, lake.clock, run)
    for is_there in (False, True):
        lake.clock.advance(31.0)
        lake.want()
        keeper.look(lake.table)
        assert (read_bad_facts(lake.folder) is not None) is is_there


def test_an_empty_quarantine_has_no_groups(lake: SimpleNamespace) -> None:
    lake.want()
    facts = lake.looked()
    assert (facts.groups, facts.looked_at, facts.is_all, facts.problem) == ((), 0, True, "")
