"""Rights on the catalog, tried by what has no effect."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from sqlalchemy import create_engine, text

from thermocline.doctor.check import Examination
from thermocline.doctor.finding import Finding, Outcome
from thermocline.doctor.lake import catalog_rights
from thermocline.iceberg.catalog import open_catalog
from thermocline.process.clock import SystemClock
from thermocline.settings import CatalogSettings, KafkaSettings, Settings

KAFKA = KafkaSettings(bootstrap_servers="b:1")


def rights(catalog: Any, settings: CatalogSettings, loaded: dict[str, Any]) -> Finding:
    examination = Examination(None, SystemClock(), read_settings=Settings(kafka=KAFKA, catalog=settings))
    examination.catalog, examination.loaded = catalog, loaded
    (finding,) = catalog_rights(examination)
    return finding


class Server:
    """A REST catalog: refuses who may not write, then what demands another table, and else commits."""

    def __init__(self, may_write: bool, checks: bool = True) -> None:
        self.may_write, self.checks, self.id, self.commits = may_write, checks, uuid.uuid4(), 0

    def commit_table(self, _: object, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> None:
        if not self.may_write:
            raise ForbiddenError("not for you")
        if self.checks and any(one.uuid != self.id for one in requirements):
            raise CommitFailedException("another table")
        self.commits += 1
        assert updates == ()


def test_the_commit_that_tries_rights_demands_what_cannot_be() -> None:
    rest = CatalogSettings(type="rest", uri="http://catalog")
    server = Server(may_write=True)
    assert rights(server, rest, {"t": SimpleNamespace()}).outcome is Outcome.WELL
    assert server.commits == 0


@pytest.mark.parametrize(
    ("server", "outcome"),
    [
        (Server(may_write=False), Outcome.PROBLEM),
        (Server(may_write=True, checks=False), Outcome.NOT_LOOKED_AT),
    ],
)
def test_a_server_that_refuses_or_checks_nothing_is_said(server: Server, outcome: Outcome) -> None:
    rest = CatalogSettings(type="rest", uri="http://catalog")
    assert rights(server, rest, {"t": SimpleNamespace()}).outcome is outcome


def test_a_database_that_takes_no_changes_is_a_problem_and_one_that_does_is_left_as_it_was(
    tmp_path: Path,
) -> None:
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog = cast("Any", open_catalog(settings, may_create=True))
    row = "INSERT INTO iceberg_tables VALUES ('lake', 'app', 't', 'here', 'there', 'TABLE')"
    with catalog.engine.begin() as connection:
        connection.execute(text(row))
    assert rights(catalog, settings, {}).outcome is Outcome.WELL
    with catalog.engine.connect() as connection:
        (left,) = connection.execute(text("SELECT * FROM iceberg_tables")).all()
    assert tuple(left)[3:5] == ("here", "there")
    read_only = create_engine(f"sqlite:///file:{tmp_path}/catalog.db?mode=ro&uri=true")
    found = rights(SimpleNamespace(engine=read_only), settings, {})
    assert found.outcome is Outcome.PROBLEM
    assert "readonly" in found.looked_at
    read_only.dispose()
    catalog.engine.dispose()
