"""Create a live table: its definition, its first seam and its quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thermocline.errors import ConfigInvalid, NotConfirmed, TableExists
from thermocline.iceberg.catalog import (
    BATCH_PROPERTY,
    EPOCH_PROPERTY,
    SEAM_PROPERTY,
    SnapshotState,
    catalog_errors,
    catalog_if_any,
    current_state,
    defined_by,
    find_table,
    load_table,
    open_catalog,
)
from thermocline.iceberg.store_check import check_store, new_place
from thermocline.ingest.commit.change import TableChange, summary_fields
from thermocline.ingest.commit.java import JavaCatalog, small_jvm
from thermocline.ingest.commit.rotation import with_topics
from thermocline.ingest.quarantine import create_quarantine
from thermocline.ingest.table.progress import new_topics
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.rules.definition import problems_of_new_names
from thermocline.rules.identity import check_has_topics, check_not_compacted
from thermocline.text.typed import again

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

_TABLE_PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    # Deletes that another engine rewrites stay bound to one data file each, as our readers need them.
    "write.delete.granularity": "file",
    # One metadata file a commit, each holding all snapshots: the last hundred are history enough.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


def create_table(settings: Settings, name: str, agreed: LiveTable | None = None) -> SnapshotState:
    """Create the table as configured, with a first, empty snapshot that carries the seam to start from.

    ``start`` is resolved to offsets here, once. Table and first snapshot appear together or not at all.
    ``agreed`` is the definition, with its topics, that somebody was shown.

    Raises:
        NotConfirmed: it would have another definition by now than was agreed to.
        TopicMissing: a topic of the definition does not exist.
        TopicsUnmatched: it names none, and no topic matches its patterns.
        TopicCompacted: it is compacted, and the table has partial updates.
        TableExists: the catalog has the table already.
        StorageFailed: the store of its files can't be written, read and deleted from.
        ConfigInvalid: a column has a name that new columns may not have.
    """
    definition = settings.table(name).definition(name)
    change = planned_creation(settings, definition)
    definition = change.definition or definition
    if agreed is not None and definition != agreed:  # safety: create-as-planned
        problem = f"the table {name} would be created otherwise now than was shown"
        now = f"now: reads {', '.join(definition.topics)}"
        raise NotConfirmed(problem=problem, command=again(), detail=now)
    catalog = open_catalog(settings.catalog, may_create=True)
    _refuse_existing(catalog, name, definition.identifier)
    with catalog_errors(catalog, name):
        catalog.create_namespace_if_not_exists(definition.identifier.rpartition(".")[0])
        if (place := new_place(catalog, name, definition.identifier)) is not None:
            check_store(*place, name)
        create_quarantine(catalog, definition.identifier)
    with small_jvm(settings.catalog) as jvm:
        create_java_table(JavaCatalog(jvm, settings.catalog), definition, change)
    return current_state(load_table(catalog, name, definition.identifier), name)


def planned_creation(settings: Settings, definition: LiveTable) -> TableChange:
    """The change that a new table begins with, once Kafka was asked; its definition has all topics.

    Writes nothing.

    Raises of what `create_table` raises all that does not come from the catalog or the store.
    """
    check_new_names(definition)
    created_ms = SystemClock().now_ms()  # before the log is asked: what is appended from here on is not known
    log = Log(settings.kafka)
    if definition.topic_patterns:
        definition = with_topics(definition, log.names())
        check_has_topics(definition)
    topics = new_topics(log, definition.topics, settings.table(definition.name).start)
    check_not_compacted(definition, log)
    return TableChange(
        topics.starts,
        log.cluster_id(),
        topics.topic_ids,
        watermark_ms=-1,
        drained_ms=created_ms,
        definition=definition,
    )


def check_new_names(definition: LiveTable) -> None:
    """Raises `ConfigInvalid` where a column has a name that new columns may not have."""
    if problems := tuple(problems_of_new_names(definition.row_schema.names)):  # safety: new-names-create
        raise ConfigInvalid(of=f"of table {definition.name}", problems=problems)


def check_creation(settings: Settings, name: str) -> None:
    """Raises what would stop `create_table`, but for the store. Writes nothing."""
    definition = settings.table(name).definition(name)
    planned_creation(settings, definition)
    catalog = catalog_if_any(settings.catalog)
    if catalog is not None:
        _refuse_existing(catalog, name, definition.identifier)


def create_java_table(catalog: JavaCatalog, definition: LiveTable, change: TableChange) -> None:
    """Make the table with its first snapshot, which carries what the change says, in one transaction."""
    properties = {
        **_TABLE_PROPERTIES,
        "format-version": str(definition.format_version),
        **defined_by(definition),
        EPOCH_PROPERTY: "0",
        SEAM_PROPERTY: change.seam.to_json(),
        BATCH_PROPERTY: change.batch_id,
        **change.properties,
    }
    schema = definition.iceberg_schema().model_dump_json()
    bucket = (definition.bucket_column.name, definition.buckets)
    summary = summary_fields(change, epoch=0, definition_version=definition.version, totals_before={})
    with catalog.errors():
        transaction = catalog.create(definition.identifier, schema, bucket, properties)
        append = transaction.newAppend()
        for key, value in summary.items():
            append.set(key, value)
        append.commit()
        transaction.commitTransaction()


def _refuse_existing(catalog: Catalog, name: str, identifier: str) -> None:
    if find_table(catalog, identifier) is not None:
        raise TableExists(table=name, identifier=identifier)
