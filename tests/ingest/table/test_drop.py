"""Dropping a table: what goes, what stays and is named, and what refuses it. On real files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyiceberg.catalog import Catalog

from thermocline.cli.entry import run
from thermocline.errors import ExitCode, ForeignSnapshot, PurgeRefused, TableHeld, TableMissing
from thermocline.iceberg.catalog import (
    DEFINITION_PROPERTY,
    EPOCH_PROPERTY,
    find_table,
    open_catalog,
    quarantine_identifier,
)
from thermocline.ingest.claim.lease import OwnerLease
from thermocline.ingest.quarantine import create_quarantine
from thermocline.ingest.table.drop import drop_table, plan_drop
from thermocline.process.clock import SystemClock
from thermocline.settings import Settings, load_settings

NAME = "profiles"
IDENTIFIER = "app.profiles"
QUARANTINE = quarantine_identifier(IDENTIFIER)
CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[ingest]
lease_seconds = 1.5
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
[tables.profiles.columns]
id = "int"
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thermocline.toml").write_text(CONFIG)
    return load_settings(tmp_path / "thermocline.toml")


@pytest.fixture
def catalog(settings: Settings) -> Catalog:
    """Both tables, with a file in each of the rooms that a table has."""
    catalog = open_catalog(settings.catalog, may_create=True)
    catalog.create_namespace("app")
    create(settings, catalog)
    create_quarantine(catalog, IDENTIFIER)
    for identifier in (IDENTIFIER, QUARANTINE):
        for room in ("data/bucket=0", "thermocline/unknown"):
            folder = place(catalog, identifier) / room
            folder.mkdir(parents=True)
            (folder / "file").write_text("x")
    return catalog


def create(settings: Settings, catalog: Catalog) -> None:
    definition = settings.table(NAME).definition(NAME)
    properties = {DEFINITION_PROPERTY: definition.to_json(), EPOCH_PROPERTY: "1"}
    catalog.create_table(IDENTIFIER, definition.iceberg_schema(), properties=properties)


def place(catalog: Catalog, identifier: str = IDENTIFIER) -> Path:
    return Path(catalog.load_table(identifier).location().removeprefix("file://"))


def there(catalog: Catalog) -> list[str]:
    return [name for name in (IDENTIFIER, QUARANTINE) if find_table(catalog, name) is not None]


def set_property(catalog: Catalog, identifier: str, name: str, value: str) -> None:
    with catalog.load_table(identifier).transaction() as transaction:
        transaction.set_properties({name: value})


def test_both_tables_leave_the_catalog_and_their_files_stay_and_are_named(
    settings: Settings, catalog: Catalog
) -> None:
    folders = [place(catalog, QUARANTINE), place(catalog)]
    dropped = drop_table(settings, NAME, purge=False, clock=SystemClock())
    assert there(catalog) == []
    assert dropped.identifiers == (QUARANTINE, IDENTIFIER)
    assert dropped.left == tuple(folder.as_uri() for folder in folders)
    assert all((folder / "data/bucket=0/file").exists() for folder in folders)
    with pytest.raises(TableMissing):
        plan_drop(settings, NAME)


def test_a_purge_deletes_what_iceberg_and_we_wrote_and_nothing_else(
    settings: Settings, catalog: Catalog
) -> None:
    folder, quarantine = place(catalog), place(catalog, QUARANTINE)
    (folder / "somebody's").mkdir()
    dropped = drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert dropped.left == (folder.as_uri(),)
    assert not quarantine.exists()
    assert [path.name for path in folder.iterdir()] == ["somebody's"]


@pytest.mark.parametrize("identifier", [IDENTIFIER, QUARANTINE])
@pytest.mark.parametrize("name", ["gc.enabled", "write.data.path"])
def test_files_that_others_may_use_are_not_purged_and_nothing_is_dropped(
    settings: Settings, catalog: Catalog, identifier: str, name: str
) -> None:
    set_property(catalog, identifier, name, "false")
    with pytest.raises(PurgeRefused, match=identifier):
        drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert there(catalog) == [IDENTIFIER, QUARANTINE]
    assert (place(catalog) / "data/bucket=0/file").exists()


def test_files_of_a_table_that_was_renamed_are_not_purged(settings: Settings, catalog: Catalog) -> None:
    """Goal: a new table of the same name, in the same folder, is not purged with the old one's files."""
    catalog.rename_table(IDENTIFIER, "app.profiles_old")
    create(settings, catalog)
    with pytest.raises(PurgeRefused, match="profiles_old has files at"):
        drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert there(catalog) == [IDENTIFIER, QUARANTINE]
    assert catalog.load_table("app.profiles_old").location() == catalog.load_table(IDENTIFIER).location()
    drop_table(settings, NAME, purge=False, clock=SystemClock())
    assert (place(catalog, "app.profiles_old") / "data/bucket=0/file").exists()


@pytest.mark.parametrize("where", ["data", "", ".."])
@pytest.mark.parametrize("identifier", ["app.inner", "app.profiles.data"])
def test_files_of_a_table_below_or_above_ours_are_not_purged(
    settings: Settings, catalog: Catalog, where: str, identifier: str
) -> None:
    location = (place(catalog) / where).as_uri().replace("file://", "file:")  # as Java spells it
    catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
    schema = settings.table(NAME).definition(NAME).iceberg_schema()
    catalog.create_table(identifier, schema, location=location)
    with pytest.raises(PurgeRefused, match=f"{identifier} has files at"):
        drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert there(catalog) == [IDENTIFIER, QUARANTINE]
    assert catalog.load_table(identifier).location() == location


def test_a_table_with_files_of_its_own_in_ours_counts_and_one_whose_name_begins_alike_does_not(
    settings: Settings, catalog: Catalog
) -> None:
    schema = settings.table(NAME).definition(NAME).iceberg_schema()
    catalog.create_table("app.profiles2", schema)
    borrowed = f"{place(catalog).as_uri()}/data"
    catalog.create_table("app.borrower", schema, properties={"write.data.path": borrowed})
    with pytest.raises(PurgeRefused, match=r"app\.borrower has files at"):
        drop_table(settings, NAME, purge=True, clock=SystemClock())
    catalog.drop_table("app.borrower")
    drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert there(catalog) == []
    assert catalog.load_table("app.profiles2").location()


@pytest.mark.parametrize("room", ["", "data/inner/"])
def test_metadata_of_a_table_that_the_catalog_does_not_know_keeps_all_files(
    settings: Settings, catalog: Catalog, room: str
) -> None:
    """Goal: what was dropped without its files, or is in another catalog, is not purged with ours."""
    schema = settings.table(NAME).definition(NAME).iceberg_schema()
    location = f"{place(catalog).as_uri()}/{room}".rstrip("/")
    catalog.create_table("app.other", schema, location=location)
    catalog.drop_table("app.other")
    set_property(catalog, IDENTIFIER, "more", "metadata of our own")
    with pytest.raises(PurgeRefused, match="of another table"):
        drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert there(catalog) == [IDENTIFIER, QUARANTINE]


def test_where_a_table_cannot_be_read_nobody_can_say_whose_the_files_are(
    settings: Settings, catalog: Catalog
) -> None:
    other = catalog.create_table("app.other", settings.table(NAME).definition(NAME).iceberg_schema())
    Path(other.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(PurgeRefused, match=r"where the files of app\.other are can't be read"):
        drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert there(catalog) == [IDENTIFIER, QUARANTINE]


def test_metadata_of_ours_that_its_log_has_forgotten_is_purged(settings: Settings, catalog: Catalog) -> None:
    set_property(catalog, IDENTIFIER, "write.metadata.previous-versions-max", "1")
    for value in "abc":
        set_property(catalog, IDENTIFIER, "more", value)
    folder = place(catalog)
    assert len(list(folder.glob("metadata/*.metadata.json"))) == 5
    drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert not folder.exists()


def test_a_table_whose_owner_lives_is_not_dropped(settings: Settings, catalog: Catalog) -> None:
    table = catalog.load_table(IDENTIFIER)
    lease = OwnerLease(table.io, table.location(), NAME, 1.5, SystemClock(), lambda _: None)
    lease.hold(epoch=2)
    try:
        with pytest.raises(TableHeld):
            drop_table(settings, NAME, purge=True, clock=SystemClock())
    finally:
        lease.release()
    assert there(catalog) == [IDENTIFIER, QUARANTINE]
    assert (place(catalog) / "data/bucket=0/file").exists()


def test_a_table_that_somebody_else_made_is_not_dropped(settings: Settings, catalog: Catalog) -> None:
    elsewhere = f"{place(catalog).as_uri()}_elsewhere"
    catalog.drop_table(IDENTIFIER)
    catalog.create_table(IDENTIFIER, settings.table(NAME).definition(NAME).iceberg_schema(), elsewhere)
    with pytest.raises(ForeignSnapshot):
        drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert there(catalog) == [IDENTIFIER, QUARANTINE]


@pytest.mark.parametrize("gone", [IDENTIFIER, QUARANTINE])
def test_a_drop_that_was_interrupted_can_be_repeated(settings: Settings, catalog: Catalog, gone: str) -> None:
    catalog.drop_table(gone)
    drop_table(settings, NAME, purge=True, clock=SystemClock())
    assert there(catalog) == []


def test_the_table_goes_last_so_that_an_interrupted_drop_is_seen(
    settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarantine that stayed would be taken for that of the table that is created next."""

    def interrupted(catalog: Catalog, identifier: str) -> None:
        catalog.drop_table(identifier)
        raise KeyboardInterrupt

    monkeypatch.setattr("thermocline.ingest.table.drop.drop_from", interrupted)
    with pytest.raises(KeyboardInterrupt):
        drop_table(settings, NAME, purge=False, clock=SystemClock())
    assert there(catalog) == [IDENTIFIER]


def test_without_a_terminal_it_wants_a_yes(
    settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["table", "drop", NAME]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "Error [not-confirmed]" in said
    assert f"thermocline table drop {NAME} --yes" in said
    assert there(catalog) == [IDENTIFIER, QUARANTINE]
    assert run(["table", "drop", NAME, "--yes"]) == ExitCode.DONE
    assert there(catalog) == []


@pytest.mark.parametrize(("answer", "left"), [("n", [IDENTIFIER, QUARANTINE]), ("y", [])])
def test_at_a_terminal_it_asks(
    settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[str]
) -> None:
    asked = []

    def confirm(question: str, err: bool) -> bool:
        asked.append(question)
        return answer == "y"

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", confirm)
    assert run(["table", "drop", NAME]) == (ExitCode.NOTHING_TO_DO if left else ExitCode.DONE)
    assert there(catalog) == left
    assert asked == [f"Drop {QUARANTINE} and {IDENTIFIER}?"]
