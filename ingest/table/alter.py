"""Alter a live table: schema, definition and a snapshot that says so, all in one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema

from thermocline.errors import AlterationRefused, NotConfirmed, ThermoclineError
from thermocline.failpoints import failpoint
from thermocline.iceberg.alterations import NotedAlteration, with_alteration
from thermocline.iceberg.catalog import current_state, definition_of, open_table
from thermocline.iceberg.compared import file_counts
from thermocline.iceberg.earlier_columns import with_earlier_columns
from thermocline.iceberg.file_buckets import bucket_specs
from thermocline.iceberg.foreign_schema import schema_differences
from thermocline.ingest.claim.ownership import own_table
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import landed
from thermocline.ingest.commit.content_files import partition_specs
from thermocline.ingest.commit.rotation import with_topics
from thermocline.ingest.table.progress import new_topics
from thermocline.ingest.table.restore_schema import restore_schema
from thermocline.ingest.table.update_schema import update_schema
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.contract.in_file import with_evolved
from thermocline.rules.definition import BUCKET_FIELD
from thermocline.rules.definition.stored import apart_from_topics
from thermocline.rules.identity import check_identity, check_not_compacted
from thermocline.text.typed import again

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.claim.lease import Say
    from thermocline.ingest.claim.ownership import Owned
    from thermocline.process.clock import Clock
    from thermocline.rules.alteration import Alteration
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings


def alter_table(
    settings: Settings,
    name: str,
    clock: Clock,
    dry_run: bool = False,
    say: Say | None = None,
    agreed: Alteration | None = None,
    drop: Collection[str] = (),
) -> Alteration:
    """Make the table's definition say what the configuration says; what that changes.

    Where another program changed the table's columns, they are first made those of its definition again.
    Nothing is written where nothing differs, nor for a ``dry_run``. New topics are read from ``start`` on.
    ``agreed`` is what a dry run showed: nothing else is done then. ``drop`` are columns, and fields within
    columns, that the configuration leaves out and that may go.

    Raises:
        AlterationRefused: something can't be changed; nothing was.
        NotConfirmed: what would be done is not what was agreed to; nothing was.
        TopicMissing: a new topic does not exist.
        TopicCompacted: a topic is compacted, and the table has partial updates.
        LogReplaced: nor does a new topic of another cluster fit.
        TableHeld: an owner lives; stop it first.
        CommitUnknown: nobody can say whether it was altered. Safe to repeat.
    """
    table = open_table(settings, name)
    definition = definition_of(table, name)
    wanted = settings.table(name).definition(name, definition)
    if wanted.topic_patterns:
        # What the table's own patterns find, ingest reads from its first record on.
        wanted = with_topics(wanted, Log(settings.kafka).names(), definition.topic_patterns)
    restored = schema_differences(definition, table.schema())
    planned = replace(_planned(table, definition, wanted, drop), undone=restored)
    _check_agreed(agreed, planned)
    if planned.topics:
        state = current_state(table, name)
        check_identity(name, state.cluster_id, state.topic_ids, Log(settings.kafka), planned.topics)
        check_not_compacted(replace(planned.definition, topics=planned.topics), Log(settings.kafka))
    if restored and not dry_run:
        restore_schema(settings.catalog, definition)
    if planned.changes and not dry_run:
        with own_table(settings, name, clock, say=say) as owned:
            # From now on nobody else alters it.
            # safety: alter-planned-again
            planned = replace(_planned(owned.table, owned.definition, wanted, drop), undone=restored)
            _check_agreed(agreed, planned)  # safety: apply-planned-again
            if planned.changes:
                commit_alteration(owned, planned, settings.table(name).start, clock)
    return replace(planned, changes=(*(f"undone: {one}" for one in restored), *planned.changes))


def costs_of(settings: Settings, planned: Alteration) -> Iterator[str]:
    """What an alteration that was planned costs, in sentences. Asks the catalog and, maybe, Kafka.

    Raises of what `alter_table` raises all that comes from the catalog.
    """
    name, files = planned.definition.name, planned.files_to_rewrite
    table = open_table(settings, name)
    yield f"{files:,} data files are rewritten" if files else "no data file is rewritten"
    before, after = definition_of(table, name).to_json(), planned.definition.to_json()
    if apart_from_topics(before) != apart_from_topics(after):
        records = _uncommitted(settings, table, planned.definition)
        yield f"each server reads the records beyond the table's seam again: {records}"
    if settings.views.enabled:
        yield "its views in Trino are replaced, or withdrawn with the reason"


def _uncommitted(settings: Settings, table: Table, definition: LiveTable) -> str:
    """How many offsets the log has beyond the seam; or why that is not known."""
    try:
        seam = current_state(table, definition.name).seam
        ends = Log(settings.kafka).ends(seam.topics)
    except ThermoclineError as error:
        return f"their number is not known now ({error.code})"
    return f"{sum(max(0, end - seam.get((topic, number))) for topic, number, end in ends.items()):,}"


def _check_agreed(agreed: Alteration | None, planned: Alteration) -> None:
    if agreed is None:
        return
    name, is_same = planned.definition.name, agreed.undone == planned.undone
    if not is_same or agreed.definition != planned.definition:  # safety: apply-as-planned
        now = "; ".join((*(f"undone: {one}" for one in planned.undone), *planned.changes)) or "nothing"
        problem = (
            f"the table {name} was changed meanwhile: what is to be done is now other than what was shown"
        )
        raise NotConfirmed(problem=problem, command=again(), detail=f"now: {now}")


def _planned(table: Table, current: LiveTable, wanted: LiveTable, drop: Collection[str]) -> Alteration:
    is_other = current.buckets_written != wanted.buckets_written
    files = file_counts(table, current.name) if is_other else None
    # What it takes up by itself, it may have taken up a moment ago.
    wanted = with_evolved(wanted, current, drop)  # safety: contract-alter
    return plan_alteration(current, wanted, table.metadata.last_column_id, files, drop)


def commit_alteration(owned: Owned, planned: Alteration, start: str, clock: Clock | None = None) -> None:
    """Commit a planned alteration to a table that is owned; new topics are read from ``start`` on.

    What changed is noted in the table's properties, with when, by the clock (by default the machine's).

    Raises what stops the commit, and `AlterationRefused` where another program changed the columns meanwhile.
    """
    state, definition = owned.state, planned.definition
    change = TableChange.carrying_on(state)
    if planned.topics:
        change = change.reading(new_topics(owned.log, planned.topics, start))
    change = replace(
        change,
        alter=altering(owned.jvm, owned.definition, planned),
        definition=definition,
    )
    at_ms = (clock or SystemClock()).now_ms()
    noted = NotedAlteration(definition.version, at_ms, change.batch_id, planned.changes)
    properties = with_alteration(owned.table.properties, noted)
    if planned.is_reread:
        properties |= with_earlier_columns(owned.table.properties, owned.definition)
    change = replace(change, properties=properties)
    failpoint("alter.commit")
    landed(owned.committer.commit(state.snapshot_id, state.seam, change))


def altering(jvm: Any, before: LiveTable, planned: Alteration) -> Callable[[Any], None]:
    """What makes an Iceberg transaction's metadata that of the definition to come.

    That is its format version, its schema and its partition spec.
    """

    def alter(transaction: Any) -> None:
        _raise_version(transaction, planned.definition.format_version)
        update_schema(jvm, transaction, before.iceberg_schema(), planned.definition.iceberg_schema())
        json = jvm.org.apache.iceberg.SchemaParser.toJson(transaction.currentMetadata().schema())
        _check_schema(Schema.model_validate_json(json), planned.definition)  # safety: alter-schema-check
        if planned.definition.buckets_written != before.buckets_written:
            _update_spec(jvm, transaction, planned.definition)

    return alter


def _raise_version(transaction: Any, version: int) -> None:
    """Iceberg's own upgrade. This commit's snapshot is of the new version, and its rows get their ids."""
    if transaction.currentMetadata().formatVersion() < version:  # safety: format-version-raised
        transaction.updateProperties().set("format-version", str(version)).commit()


def _update_spec(jvm: Any, transaction: Any, definition: LiveTable) -> None:
    """New files have the definition's number of buckets; files that are there keep their spec.

    A number that the table had before gets its spec of then again. Another one gets a field with a name of
    its own, since readers see the fields of all specs side by side; no column may have such a name.
    """
    count, metadata = definition.buckets_written, transaction.currentMetadata()
    known = bucket_specs(partition_specs(jvm, metadata.specsById().values()))
    name = known[count].fields[0].name if count in known else f"_{BUCKET_FIELD}_{count}"
    bucket = jvm.org.apache.iceberg.expressions.Expressions.bucket(definition.bucket_column.name, count)
    update = transaction.updateSpec()
    for field in metadata.spec().fields():
        update.removeField(field.name())
    update.addField(name, bucket).commit()


def _check_schema(found: Schema, definition: LiveTable) -> None:
    """Data files carry the definition's field ids: Iceberg must mean the same columns by them.

    Raises `AlterationRefused` where it does not, as after another program changed the table's columns.
    """
    ours, theirs = list(_columns(definition.iceberg_schema())), list(_columns(found))
    if ours != theirs:
        problem = (
            f"the columns of the Iceberg table would be {', '.join(theirs)}, but those of the definition "
            f"{', '.join(ours)} (field id, name, type): another program changed the table's columns"
        )
        raise AlterationRefused(table=definition.name, problems=(problem,))


def _columns(schema: Schema) -> Iterator[str]:
    """The columns in their order, then the fields within them: a list's and a map's text lacks their ids."""
    columns = [field.field_id for field in schema.fields]
    for field_id in (*columns, *sorted(set(schema.field_ids) - set(columns))):
        field, name = schema.find_field(field_id), schema.find_column_name(field_id)
        yield f"{field_id} {name} {field.field_type}{' not null' if field.required else ''}"
