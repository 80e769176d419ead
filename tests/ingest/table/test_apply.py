"""`apply` on a real catalog: what was shown is what is done, once, and nothing is dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ingest.small_ingest import NAME, Ingest, settings_of
from thermocline.errors import NotConfirmed
from thermocline.iceberg.catalog import definition_of, open_table
from thermocline.ingest.claim.ownership import own_table
from thermocline.ingest.table.alter import alter_table
from thermocline.ingest.table.apply import Step, do_step, planned_steps
from thermocline.process.clock import SystemClock
from thermocline.settings import Settings

pytestmark = pytest.mark.jvm

OWN_TABLE = "thermocline.ingest.table.alter.own_table"


@pytest.fixture
def ingest(tmp_path: Path, jvm: Any) -> Ingest:
    """A table with rows, that nobody owns."""
    ingest = Ingest(settings_of(tmp_path, "sqlite:///catalog.db"), jvm, seed=7)
    change, ingest.expected = ingest.batch()
    ingest.owned.committer.commit(*ingest.planned, change)
    ingest.owned.release()
    return ingest


def wanted(ingest: Ingest, **changes: Any) -> Settings:
    """The settings, with another table section."""
    file = ingest.settings.tables[NAME]
    columns = {**file.columns, **changes.pop("columns", {})}
    changed = file.model_copy(update={"columns": columns, **changes})
    return ingest.settings.model_copy(update={"tables": {NAME: changed}})


def planned(settings: Settings) -> Step:
    (step,) = planned_steps(settings, [NAME], SystemClock())
    return step


def do(settings: Settings, step: Step) -> None:
    do_step(settings, step, SystemClock(), lambda _: None)


def metadata_of(settings: Settings) -> str:
    return open_table(settings, NAME).metadata_location


def test_what_is_planned_is_done_and_then_there_is_nothing_to_do(ingest: Ingest) -> None:
    settings = wanted(ingest, columns={"country": "string"}, transactional=True)
    before = metadata_of(settings)
    step = planned(settings)
    assert (step.action, step.changes) == (
        "alter",
        (
            "column country is added as string; rows that are there have null",
            "transactional becomes true, from false",
        ),
    )
    assert metadata_of(settings) == before
    do(settings, step)
    definition = definition_of(open_table(settings, NAME), NAME)
    assert definition.differences(settings.table(NAME).definition(NAME)) == ()
    assert (definition.version, definition.transactional) == (2, True)
    ingest.refresh()
    assert ingest.rows() == ingest.expected
    after, again = metadata_of(settings), planned(settings)
    assert (again.action, again.changes) == ("nothing", ())
    do(settings, again)
    assert metadata_of(settings) == after


def test_nothing_is_done_where_the_table_is_not_any_more_as_the_plan_saw_it(ingest: Ingest) -> None:
    """Goal: somebody agrees to a plan, and only that is done; what others did meanwhile is not undone.

    Method: between plan and deed, another alteration adds the same column and one more option.
    """
    settings = wanted(ingest, columns={"country": "string"})
    step = planned(settings)
    alter_table(wanted(ingest, columns={"country": "string"}, transactional=True), NAME, SystemClock())
    before = metadata_of(settings)
    with pytest.raises(NotConfirmed, match="what is to be done is now other than what was shown") as refused:
        do(settings, step)
    assert refused.value.detail == "now: transactional becomes false, from true"
    assert metadata_of(settings) == before


def test_nor_where_it_changes_while_the_table_is_being_taken(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, when the other alteration comes after the first look, before the table is owned."""
    settings = wanted(ingest, columns={"country": "string"})
    step = planned(settings)

    def owned_later(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(OWN_TABLE, own_table)
        alter_table(wanted(ingest, transactional=True), NAME, SystemClock())
        return own_table(*arguments, **named)

    monkeypatch.setattr(OWN_TABLE, owned_later)
    with pytest.raises(NotConfirmed, match="changed meanwhile"):
        do(settings, step)
    definition = definition_of(open_table(settings, NAME), NAME)
    assert [column.name for column in definition.columns] == ["user_id", "key", "value"]
    assert definition.transactional


def test_columns_that_another_program_renamed_are_given_back_as_the_plan_says(
    tmp_path: Path, jvm: Any
) -> None:
    ingest = Ingest(settings_of(tmp_path, "sqlite:///catalog.db", format_version=2), jvm, seed=7)
    ingest.owned.release()
    with open_table(ingest.settings, NAME).update_schema() as update:
        update.rename_column("value", "other")
    step = planned(ingest.settings)
    assert (step.action, step.changes) == ("alter", ("undone: value was renamed to other",))
    do(ingest.settings, step)
    assert open_table(ingest.settings, NAME).schema().column_names[:3] == ["user_id", "key", "value"]
    assert planned(ingest.settings).action == "nothing"


def test_a_column_that_the_file_no_longer_has_is_left_to_a_person(ingest: Ingest) -> None:
    file = ingest.settings.tables[NAME]
    columns = {name: text for name, text in file.columns.items() if name != "value"} | {"more": "int"}
    settings = ingest.settings.model_copy(
        update={"tables": {NAME: file.model_copy(update={"columns": columns})}}
    )
    before, step = metadata_of(settings), planned(settings)
    assert step.action == "by hand"
    assert "the column value can't be left out" in step.changes[0]
    do(settings, step)
    assert metadata_of(settings) == before
