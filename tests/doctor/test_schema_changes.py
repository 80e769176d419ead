"""What doctor says of contracts: ingest that stopped, records that they refuse, and the last change."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from tests.serving.small_lake import create_table, lake_settings
from thermocline.doctor.check import Examination
from thermocline.doctor.finding import Finding, Outcome
from thermocline.doctor.tables import schema_changes
from thermocline.errors import ExitCode, SchemaStopped
from thermocline.iceberg.alterations import NotedAlteration, NotedCause, with_alteration
from thermocline.iceberg.catalog import open_catalog, open_table
from thermocline.ingest.claim.lease import OwnerLease
from thermocline.ingest.quarantine import (
    SCHEMA,
    create_quarantine,
    keep_files,
    open_quarantine,
    write_quarantine_file,
)
from thermocline.process.clock import SystemClock
from thermocline.settings import Settings

EMAIL = 'the contract refuses schema 7: field "email" (string) has no column (new_columns = "quarantine")'
PHONE = 'the contract refuses schema 8: field "phone" (string) has no column (new_columns = "quarantine")'
ALTER = (
    "# declare the fields in [tables.orders.columns], or change contract, with ingest stopped; then\n"
    "thermocline table alter orders\n"
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = lake_settings(tmp_path, "orders")
    create_table(settings, "orders")
    return settings


@pytest.fixture
def catalog(settings: Settings) -> Catalog:
    return open_catalog(settings.catalog)


def found(settings: Settings, catalog: Catalog) -> Finding:
    examination = Examination(None, SystemClock(), read_settings=settings, catalog=catalog)
    examination.loaded["orders"] = open_table(settings, "orders")
    (finding,) = schema_changes(examination)
    assert finding.subject == "orders"
    return finding


def quarantine(catalog: Catalog, *records: tuple[int, str]) -> None:
    made = [
        {
            "topic": "orders",
            "topic_id": "first",
            "partition": 0,
            "offset": offset,
            "timestamp": datetime(2026, 3, 1, tzinfo=UTC),
            "stage": "contract",
            "reason": reason,
            "value": b"zuleika",
        }
        for offset, reason in records
    ]
    companion = open_quarantine(catalog, "orders", "app.orders")
    file = write_quarantine_file(companion.io, companion.location(), [pa.Table.from_pylist(made, SCHEMA)])
    keep_files(companion, [file])


def test_a_table_that_met_no_other_schema_is_well(settings: Settings, catalog: Catalog) -> None:
    assert found(settings, catalog).outcome is Outcome.WELL, "also without a quarantine"
    create_quarantine(catalog, "app.orders")
    quarantine(catalog, (1, "note (string): Expected `str | null`, got `int`"))
    assert found(settings, catalog).looked_at == (
        "its contract changed nothing that is known, and refuses none in quarantine"
    )


def test_the_last_change_is_told_with_its_cause(settings: Settings, catalog: Catalog) -> None:
    cause = NotedCause(("plan",), "orders/0@4", "value", "2", "version 7 of orders-value")
    note = NotedAlteration(2, 1_768_435_200_000, "b", ("plan is added",), (cause,))
    table = open_table(settings, "orders")
    with table.transaction() as transaction:
        transaction.set_properties(with_alteration(table.properties, note))
    finding = found(settings, catalog)
    assert finding.outcome is Outcome.WELL
    assert finding.looked_at == (
        "changed by its contract 2026-01-15T00:00:00.000Z: plan is added; "
        "cause for plan: schema 2 (version 7 of orders-value), first met at orders/0@4"
    )


def test_records_that_a_contract_refuses_are_told_by_their_fields_and_how_to_go_on(
    settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_quarantine(catalog, "app.orders")
    quarantine(catalog, (3, EMAIL), (4, PHONE))
    quarantine(catalog, (5, EMAIL), (3, EMAIL))  # a repeat, after a crash of ingest
    finding = found(settings, catalog)
    assert (finding.outcome, finding.looked_at) == (
        Outcome.WARNING,
        f"{EMAIL}: 2 records; {PHONE}: 1 record (in quarantine)",
    )
    assert finding.fix == (
        f"{ALTER}# what would be applied; then without --dry-run\n"
        "thermocline quarantine replay orders --all --dry-run"
    )
    monkeypatch.setattr("thermocline.doctor.tables.QUARANTINED_MAX", 2)
    assert found(settings, catalog).looked_at == f"{EMAIL}: 2 records (of the newest 2 in quarantine)"


def test_ingest_that_a_contract_stopped_is_a_problem_with_the_commands_to_go_on(
    settings: Settings, catalog: Catalog
) -> None:
    table = open_table(settings, "orders")
    lease = OwnerLease(table.io, table.location(), "orders", 60.0, SystemClock(), lambda _: None)
    lease.hold(1)
    change = 'field "email" (string) has no column'
    stopped = SchemaStopped(table="orders", schema="7", part="value", record="orders/0@9", changes=(change,))
    lease.release(stopped)
    finding = found(settings, catalog)
    assert (finding.outcome, finding.code, finding.exit_code) == (
        Outcome.PROBLEM,
        "schema-stopped",
        ExitCode.STOPPED,
    )
    assert change in finding.looked_at
    assert "orders/0@9" in finding.looked_at
    assert finding.fix == f"{ALTER}thermocline ingest run orders"
