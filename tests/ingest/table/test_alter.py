"""An alteration's commit on a real catalog: one swap, the ids in files, lost answers, others."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.ingest.postgres import Loss
from tests.ingest.small_ingest import NAME, Ingest, SqliteThatLosesAnswers, settings_of
from thermocline.errors import AlterationRefused, CommitUnknown, ForeignSchema
from thermocline.iceberg.alterations import alterations_of
from thermocline.iceberg.catalog import definition_of, open_table
from thermocline.iceberg.files import DataFile, local_path, plan_files
from thermocline.ingest.claim.ownership import Owned
from thermocline.ingest.commit.commit import Landed, Rejected
from thermocline.ingest.table.alter import alter_table, commit_alteration
from thermocline.process.clock import SystemClock
from thermocline.rules.alteration import Alteration, plan_alteration
from thermocline.rules.definition import LiveTable
from thermocline.settings import load_settings

pytestmark = pytest.mark.jvm


@pytest.fixture
def ingest(tmp_path: Path, jvm: Any) -> Ingest:
    return Ingest(settings_of(tmp_path, "sqlite:///catalog.db"), jvm, seed=random.randrange(1_000_000))


def current(ingest: Ingest) -> LiveTable:
    ingest.refresh()
    return definition_of(ingest.owned.table, NAME)


def planned(ingest: Ingest, **columns: str) -> Alteration:
    """The alteration that adds columns, the first of them before all others."""
    definition = current(ingest)
    wanted = {column.name: column.type.declared for column in definition.columns}
    file = LiveTable.build(
        name=NAME,
        identifier=definition.identifier,
        topics=definition.topics,
        key=definition.key,
        entity=definition.entity,
        buckets=definition.buckets,
        columns={**columns, **wanted},
    )
    return plan_alteration(definition, file, ingest.owned.table.metadata.last_column_id)


def commit_batch(ingest: Ingest) -> None:
    change, ingest.expected = ingest.batch()
    assert isinstance(ingest.owned.committer.commit(*ingest.planned, change), Landed)
    assert ingest.rows() == ingest.expected


def test_no_batch_lands_on_columns_that_another_program_changed(tmp_path: Path, jvm: Any) -> None:
    ingest = Ingest(settings_of(tmp_path, "sqlite:///catalog.db", format_version=2), jvm, seed=1)
    commit_batch(ingest)
    change, _ = ingest.batch()
    with ingest.owned.table.update_schema() as update:
        update.rename_column("value", "other")
    outcome = ingest.owned.committer.commit(*ingest.planned, change)
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, ForeignSchema)
    assert outcome.error.differences == ("value was renamed to other",)


def test_schema_definition_and_snapshot_change_in_one_swap_that_batches_go_on_from(ingest: Ingest) -> None:
    commit_batch(ingest)
    before, state = ingest.owned.table.metadata_location, ingest.owned.state
    alteration = planned(ingest, score="double", seen="date")

    commit_alteration(ingest.owned, alteration, "earliest")

    definition = current(ingest)
    table, after = ingest.owned.table, ingest.owned.state
    assert definition == alteration.definition
    assert table.metadata.metadata_log[-1].metadata_file == before
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.schema_id == table.schema().schema_id
    assert after.definition_version == definition.version == 2
    assert replace(
        state, snapshot_id=0, batch_id="", definition_version=0, timestamp_ms=0, counts={}
    ) == replace(after, snapshot_id=0, batch_id="", definition_version=0, timestamp_ms=0, counts={})
    assert table.schema().column_names[:2] == ["score", "seen"]
    assert ingest.rows() == ingest.expected
    (noted,) = alterations_of(table.properties)
    assert (noted.version, noted.batch_id, noted.changes) == (2, after.batch_id, alteration.changes)
    assert len(noted.changes) == 2

    old = {file.path for file in plan_files(table, after.snapshot_id)}
    ingest.definition = definition
    commit_batch(ingest)
    commit_batch(ingest)
    new = {file.path for file in plan_files(ingest.owned.table, ingest.owned.state.snapshot_id)} - old
    for path in new:
        schema = pq.read_schema(local_path(path))
        ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema}
        assert ids == {field.name: field.field_id for field in table.schema().fields}


def test_a_table_of_version_2_gets_version_3_and_its_rows_ids_while_old_deletes_stay(
    tmp_path: Path, jvm: Any
) -> None:
    """Goal: an upgrade in place leaves every row as it is, and what is written from then on is of version 3.

    Method: batches leave position delete files; after the upgrade others delete more rows of the same files,
    and of new ones. Files are held, so that none is merged away. In between, the rows are read by PyIceberg.
    """
    ingest = Ingest(settings_of(tmp_path, "sqlite:///catalog.db", format_version=2), jvm, seed=11)
    for _ in range(6):
        commit_batch(ingest)
        ingest.held = frozenset(file.path for file in ingest.files())
    before = ingest.files()
    assert {file.deletes.format for file in before if file.deletes} == {"parquet"}
    assert {file.origin.first_row_id for file in before} == {None}
    unsaid = load_settings(unversioned(tmp_path))
    ingest.owned.release()
    assert alter_table(unsaid, NAME, SystemClock()).changes == (), "no version is no wish"

    ingest.settings = settings_of(tmp_path, "sqlite:///catalog.db")
    (change,) = alter_table(ingest.settings, NAME, SystemClock()).changes
    assert change.startswith("format_version becomes 3, from 2")
    ingest.take_over()
    assert ingest.rows() == ingest.expected
    assert ingest.owned.table.format_version == 3
    upgraded = ingest.files()
    assert upgraded == before, "no file was written"
    ids = row_ids(upgraded)
    assert len(set(ids)) == len(ids) == sum(file.rows for file in before)

    ingest.definition = current(ingest)
    formats = []
    for _ in range(6):
        commit_batch(ingest)
        ingest.held = frozenset(file.path for file in ingest.files())
        formats.append({file.deletes.format for file in ingest.files() if file.deletes})
    assert {"parquet", "puffin"} in formats, "they stand side by side"
    after = ingest.files()
    raised = {file.path for file in before if file.deletes} & {
        file.path for file in after if file.deletes and file.deletes.format == "puffin"
    }
    assert raised, "a vector has taken the place of a position delete file"
    ids = row_ids(after)
    assert len(set(ids)) == len(ids)
    known = {file.path: file.origin.first_row_id for file in upgraded}
    assert {file.path: file.origin.first_row_id for file in after if file.path in known} == known

    ingest.owned.release()
    with pytest.raises(AlterationRefused, match="Iceberg has no way back"):
        alter_table(settings_of(tmp_path, "sqlite:///catalog.db", format_version=2), NAME, SystemClock())


def unversioned(folder: Path) -> Path:
    """The file without a format version."""
    config = folder / "unversioned.toml"
    lines = (folder / "thermocline.toml").read_text().splitlines()
    config.write_text("\n".join(line for line in lines if not line.startswith("format_version")))
    return config


def row_ids(files: Sequence[DataFile]) -> list[int]:
    """Of all rows, deleted ones too."""
    found: list[int] = []
    for file in files:
        assert file.origin.first_row_id is not None
        found += range(file.origin.first_row_id, file.origin.first_row_id + file.rows)
    return found


def test_comments_of_columns_are_those_of_the_iceberg_table(ingest: Ingest) -> None:
    columns = ingest.settings.table(NAME).columns
    wanted: dict[str, Any] = {**columns, "value": {"type": "string", "comment": "what it is"}}
    wanted["seen"] = {"type": "date", "comment": "when"}
    file = ingest.settings.table(NAME).model_copy(update={"columns": wanted})
    settings = ingest.settings.model_copy(update={"tables": {NAME: file}})
    ingest.owned.release()
    alter_table(settings, NAME, SystemClock())
    schema = open_table(settings, NAME).schema()
    assert {field.name: field.doc for field in schema.fields if field.doc} == {
        "value": "what it is",
        "seen": "when",
    }
    alter_table(
        settings.model_copy(update={"tables": {NAME: file.model_copy(update={"columns": columns})}}),
        NAME,
        SystemClock(),
        drop=["seen"],
    )
    assert not any(field.doc for field in open_table(settings, NAME).schema().fields)


def test_what_another_alteration_changed_meanwhile_is_not_lost(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the alteration is planned on what the table says once nobody else can change it.

    Method: another column is added between the first look at the table and the ownership.
    """
    file = ingest.settings.tables[NAME]
    columns = {**file.columns, "score": "double", "note": "string"}
    wanted = file.model_copy(update={"columns": columns})
    settings = ingest.settings.model_copy(update={"tables": {NAME: wanted}})

    @contextmanager
    def owned_later(*_: object, **__: object) -> Iterator[Owned]:
        commit_alteration(ingest.owned, planned(ingest, score="double"), "earliest")
        ingest.refresh()
        ingest.owned.definition = current(ingest)
        yield ingest.owned

    monkeypatch.setattr("thermocline.ingest.table.alter.own_table", owned_later)
    first = current(ingest)
    columns_before = [column.name for column in first.columns]
    planned_later = alter_table(settings, NAME, SystemClock())
    assert [one for one in planned_later.changes if "score is added" in one] == []
    assert [column.name for column in current(ingest).columns] == [*columns_before, "score", "note"]


@pytest.mark.parametrize("loss", list(Loss))
def test_an_alteration_whose_answer_is_lost_can_be_repeated(
    ingest: Ingest, tmp_path: Path, loss: Loss
) -> None:
    commit_batch(ingest)
    sqlite = SqliteThatLosesAnswers(ingest, tmp_path / "catalog.db")
    alteration = planned(ingest, score="double")
    sqlite.lose_next_commit(loss)
    if loss == Loss.APPLIED:  # it is found in the table
        commit_alteration(ingest.owned, alteration, "earliest")
    else:
        with pytest.raises(CommitUnknown):
            commit_alteration(ingest.owned, alteration, "earliest")
    sqlite.deliver_late()
    ingest.take_over()
    again = planned(ingest, **({"score": "double"} if current(ingest).version == 1 else {}))
    assert bool(again.changes) == (loss == Loss.DROPPED)
    if again.changes:
        commit_alteration(ingest.owned, again, "earliest")
    assert current(ingest) == alteration.definition
    assert ingest.rows() == ingest.expected
    ingest.definition = alteration.definition
    commit_batch(ingest)


def test_a_column_that_another_program_added_and_dropped_is_no_hindrance(ingest: Ingest) -> None:
    """Goal: Iceberg never gives a field id twice, so that new columns get the ids after all it ever gave."""
    commit_batch(ingest)
    others = ingest.java_table()
    others.updateSchema().addColumn("foreign_one", others.schema().findType("value")).commit()
    others.updateSchema().deleteColumn("foreign_one").commit()
    ingest.refresh()
    given = ingest.owned.table.metadata.last_column_id

    alteration = planned(ingest, score="double")
    commit_alteration(ingest.owned, alteration, "earliest")

    assert alteration.added[0].field_id == given + 1
    assert current(ingest) == alteration.definition
    ingest.definition = alteration.definition
    commit_batch(ingest)


def test_a_column_of_another_program_refuses_an_alteration_whole(ingest: Ingest) -> None:
    """Iceberg would give our column another field id than the one that our files would carry."""
    commit_batch(ingest)
    alteration = planned(ingest, score="double")
    others = ingest.java_table()
    others.updateSchema().addColumn("foreign_one", others.schema().findType("value")).commit()
    before = current(ingest), ingest.owned.table.metadata_location

    with pytest.raises(AlterationRefused, match="another program changed the table's columns"):
        commit_alteration(ingest.owned, alteration, "earliest")

    assert (current(ingest), ingest.owned.table.metadata_location) == before
    commit_batch(ingest)
