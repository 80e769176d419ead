"""Checks of catalog and store: do they answer, are the tables there, and may they be written?

Writing is tried by what has no effect: a change of no row, a commit that can't land, a file that is deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.table.update import AssertTableUUID
from requests import RequestException
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from thermocline.doctor.finding import Finding, Outcome, not_looked_at, of_error, well
from thermocline.errors import ThermoclineError, first_line
from thermocline.iceberg.catalog import find_table, open_catalog
from thermocline.iceberg.catalog_properties import pyiceberg_properties, sqlite_path
from thermocline.iceberg.store_check import check_store, new_place, place_in_warehouse

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.doctor.check import Examination
    from thermocline.iceberg.store_check import Place

__all__ = ["catalog", "catalog_rights", "changes_nothing", "store", "tables"]

_NO_ROW: Final = "UPDATE iceberg_tables SET metadata_location = metadata_location WHERE 1 = 0"


def catalog(examination: Examination) -> Sequence[Finding]:
    """Whether it answers; one in SQLite that isn't there yet is made with the first table."""
    settings = examination.settings.catalog
    at = str(settings.shown()["uri"]) or settings.type
    sqlite = sqlite_path(settings.uri)
    if sqlite is not None and not Path(sqlite).exists():
        examination.is_catalog_known = True
        return (well(f"{at}: made with the first table"),)
    opened = open_catalog(settings)
    for name in examination.tables:  # the first question goes to the server
        find_table(opened, examination.settings.table(name).identifier)
        break
    examination.catalog, examination.is_catalog_known = opened, True
    return (well(at),)


def tables(examination: Examination) -> Sequence[Finding]:
    """Whether each table is there, is one of ours, and is defined as the file says."""
    from thermocline.errors import TableMissing  # noqa: PLC0415
    from thermocline.iceberg.catalog import current_state, definition_of, load_table  # noqa: PLC0415
    from thermocline.iceberg.foreign_schema import check_schema  # noqa: PLC0415
    from thermocline.rules.contract.in_file import with_evolved  # noqa: PLC0415

    found: list[Finding] = []
    for name in examination.tables:
        identifier = examination.settings.table(name).identifier
        try:
            if examination.catalog is None:
                raise TableMissing(table=name, identifier=identifier)
            loaded = load_table(examination.catalog, name, identifier)
            definition = definition_of(loaded, name)
            check_schema(loaded, definition)
            examination.loaded[name] = loaded
            examination.states[name] = current_state(loaded, name)
        except ThermoclineError as error:
            found.append(of_error(error, name))
            continue
        wanted = with_evolved(examination.settings.table(name).definition(name, definition), definition)
        differences = wanted.differences(definition)
        if differences:
            found.append(
                Finding(
                    Outcome.PROBLEM,
                    f"the file's definition differs from the table's: {'; '.join(differences)}",
                    "ingest does not run, as one of the two is not what you mean; servers follow the table",
                    f"# or change the file; --dry-run only shows it\nthermocline table alter {name}",
                    name,
                    "definition-differs",
                    2,
                )
            )
        else:
            snapshot = examination.states[name].snapshot_id
            found.append(well(f"{identifier}, snapshot {snapshot}", name))
    return found


def catalog_rights(examination: Examination) -> Sequence[Finding]:
    """Whether the catalog lets us commit."""
    opened: Any = examination.catalog
    if opened is None:
        return (not_looked_at("there is no catalog yet"),)
    if hasattr(opened, "engine"):
        return (_of_database(opened, str(examination.settings.catalog.shown()["uri"])),)
    if examination.settings.catalog.type == "rest":
        found = [_of_server(opened, name, table) for name, table in examination.loaded.items()]
        return found or (not_looked_at("no table is there to try a commit on"),)
    return (not_looked_at(f"a catalog of type {examination.settings.catalog.type} has no change of nothing"),)


def changes_nothing(opened: Any) -> None:
    """Changes no row of the catalog's database, and takes that back. Raises `SQLAlchemyError`."""
    with opened.engine.connect() as connection:
        transaction = connection.begin()
        try:
            connection.execute(text(_NO_ROW))
        finally:
            transaction.rollback()


def _of_database(opened: Any, at: str) -> Finding:
    try:
        changes_nothing(opened)
    except SQLAlchemyError as error:
        user = opened.engine.url.username
        sqlite = sqlite_path(str(opened.engine.url))
        fix = f"chmod u+w '{sqlite}' '{Path(sqlite).parent}'" if sqlite else _grant(user, opened.engine.url)
        reason = first_line(getattr(error, "orig", None) or error)
        return Finding(Outcome.PROBLEM, f"{at}: {reason}", "no batch can be committed", fix)
    return well(f"{at}: changed no row, and took it back")


def _grant(user: str | None, url: Any) -> str:
    return (
        "# as the owner of the catalog's tables\n"
        f"psql -h {url.host} -p {url.port or 5432} -d {url.database} -c 'GRANT SELECT, INSERT, UPDATE, "
        f'DELETE ON iceberg_tables, iceberg_namespace_properties TO "{user}"\''
    )


def _of_server(opened: Any, name: str, table: Table) -> Finding:
    """By a commit that demands that the table be another one: it is refused, but not for want of rights."""
    try:
        opened.commit_table(table, (AssertTableUUID(uuid=uuid.uuid4()),), ())  # safety: doctor-commit-refused
    except CommitFailedException:
        return well("a commit that can't land was refused as such, not for want of rights", name)
    except (RESTError, RequestException) as error:
        return Finding(
            Outcome.PROBLEM,
            f"a commit that can't land got: {type(error).__name__}: {first_line(error)}",
            "no batch can be committed",
            "# have the catalog's administrator let this user write; then\nthermocline doctor",
            name,
        )
    return not_looked_at(
        "the server accepted a commit of nothing to another table, so it checks too little", name
    )


def store(examination: Examination) -> Sequence[Finding]:
    """Whether files can be written, read and deleted: one small file in each, as `config check` does."""
    places: dict[object, tuple[str, Place | None]] = {}
    for name in examination.tables:
        place = _place(examination, name)
        key = place and ("/".join(place[1].split("/")[:3]), getattr(place[0], "access", None))
        places.setdefault(key, (name, place))
    found = []
    for name, place in places.values():
        if place is None:
            found.append(not_looked_at("only the catalog knows where; `table create` tries it", name))
            continue
        try:
            check_store(*place, name)
        except ThermoclineError as error:
            found.append(of_error(error, place[1]))
        else:
            found.append(well("wrote, read and deleted a small file", place[1]))
    return found


def _place(examination: Examination, name: str) -> Place | None:
    loaded = examination.loaded.get(name)
    if loaded is not None:
        return loaded.io, loaded.location()
    if examination.catalog is None:
        return place_in_warehouse(pyiceberg_properties(examination.settings.catalog))
    return new_place(examination.catalog, name, examination.settings.table(name).identifier)
