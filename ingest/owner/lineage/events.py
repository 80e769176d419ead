"""The events of one table: OpenLineage's RunEvent, with the facets that say what was read and written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from thermocline import __version__
from thermocline.ingest.owner.lineage.datasets import (
    DatasetName,
    address_of,
    name_of_table,
    name_of_topic,
    symlinks_of,
)
from thermocline.process.clock import iso_time

if TYPE_CHECKING:
    from thermocline.ingest.owner.lineage.happened import Committed, Happened
    from thermocline.kafka.facts import OffsetRange
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

__all__ = ["Event", "Events"]

Event = dict[str, Any]
Facet = dict[str, Any]

_PACKAGE: Final = "pkg:generic/thermocline-lake"
PRODUCER: Final = f"{_PACKAGE}@{__version__}"
EVENT_SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS: Final = "https://openlineage.io/spec/facets"
# Ours are described in the repository, in files that never change once they are released.
OFFSETS_SCHEMA: Final = f"{_PACKAGE}#docs/lineage/ThermoclineOffsetsInputDatasetFacet-1.json"
COMMIT_SCHEMA: Final = f"{_PACKAGE}#docs/lineage/ThermoclineCommitOutputDatasetFacet-1.json"
_CATALOGS: Final = {"sql": "jdbc"}  # as others call it


@dataclass(frozen=True)
class Events:
    """Makes the events of a table that is at that location."""

    settings: Settings
    definition: LiveTable
    location: str

    def of(self, happened: Happened) -> Event:
        """The event of what happened."""
        return {
            "eventType": happened.type,
            "eventTime": iso_time(happened.at_ms),
            "producer": PRODUCER,
            "schemaURL": EVENT_SCHEMA,
            "run": {"runId": happened.run_id, "facets": _run_facets(happened)},
            "job": {
                "namespace": self.settings.lineage.namespace,
                "name": f"{self.definition.name}.{happened.job}",
                "facets": {
                    "jobType": _facet(
                        "JobTypeJobFacet",
                        "2-0-4",
                        processingType="BATCH",
                        integration="THERMOCLINE",
                        jobType=happened.job.upper(),
                    )
                },
            },
            "inputs": self._inputs(happened),
            "outputs": [self._output(happened.committed)],
        }

    def _inputs(self, happened: Happened) -> list[Event]:
        if happened.job == "ingest":
            topics = self.definition.topics if happened.topics is None else happened.topics
            return [self._topic(topic, happened.ranges) for topic in topics]
        done = happened.committed
        facets: Event = {}
        if done is not None:
            facets["inputStatistics"] = _facet(
                "InputStatisticsInputDatasetFacet",
                "1-0-0",
                rowCount=done.removed.rows,
                size=done.removed.bytes,
                fileCount=done.removed.files,
            )
        return [{**_named(self._table), "facets": self._table_facets, "inputFacets": facets}]

    def _topic(self, topic: str, ranges: Iterable[OffsetRange]) -> Event:
        name = name_of_topic(self.settings.kafka.bootstrap_servers, topic)
        read = [
            {"partition": one.partition, "first": one.first, "end": one.end}
            for one in ranges
            if one.topic == topic
        ]
        return {
            **_named(name),
            "facets": {"dataSource": _source(name.namespace, name.namespace)},
            "inputFacets": {"thermocline_offsets": _own(OFFSETS_SCHEMA, partitions=read)},
        }

    def _output(self, done: Committed | None) -> Event:
        output = _named(self._table)
        if done is None:
            return {**output, "facets": self._table_facets}
        version = _facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion=str(done.snapshot_id))
        written = _facet(
            "OutputStatisticsOutputDatasetFacet",
            "1-0-2",
            rowCount=done.written.rows,
            size=done.written.bytes,
            fileCount=done.written.files,
        )
        commit = _own(
            COMMIT_SCHEMA,
            batchId=done.batch_id,
            seam=done.seam.to_dict(),
            records=dict(done.records),
            carriedRows=done.carried_rows,
            removedFiles=done.removed.files,
        )
        return {
            **output,
            "facets": {**self._table_facets, "version": version},
            "outputFacets": {"outputStatistics": written, "thermocline_commit": commit},
        }

    @cached_property
    def _table(self) -> DatasetName:
        return name_of_table(self.location)

    @cached_property
    def _table_facets(self) -> dict[str, Facet]:
        """What is the same in all of the table's events."""
        schema = self.definition.iceberg_schema()
        catalog, views = self.settings.catalog, self.settings.views
        names = symlinks_of(catalog, views, self.definition.identifier)
        known_as = [{**_named(name), "type": "TABLE"} for name in names]
        addresses = {"metadataUri": catalog.uri, "warehouseUri": catalog.warehouse}
        namespace = self._table.namespace
        return {
            "schema": _facet("SchemaDatasetFacet", "1-2-0", fields=_fields(schema.fields)),
            "dataSource": _source(namespace, "file:///" if namespace == "file" else namespace),
            "storage": _facet("StorageDatasetFacet", "1-0-1", storageLayer="iceberg", fileFormat="parquet"),
            "catalog": _facet(
                "CatalogDatasetFacet",
                "1-1-0",
                framework="iceberg",
                type=_CATALOGS.get(catalog.type, catalog.type),
                name=catalog.name,
                source="thermocline",
                **{name: _address(uri) for name, uri in addresses.items() if uri},
            ),
            **(
                {"symlinks": _facet("SymlinksDatasetFacet", "1-0-1", identifiers=known_as)}
                if known_as
                else {}
            ),
        }


def _run_facets(happened: Happened) -> dict[str, Facet]:
    engine = _facet(
        "ProcessingEngineRunFacet",
        "1-1-1",
        name="Thermocline",
        version=__version__,
        openlineageAdapterVersion=__version__,
    )
    if not happened.error:
        return {"processing_engine": engine}
    error = _facet("ErrorMessageRunFacet", "1-0-1", message=happened.error, programmingLanguage="PYTHON")
    return {"processing_engine": engine, "errorMessage": error}


def _address(uri: str) -> str:
    """Of a catalog or a warehouse, which may be a path, or a name that the catalog's server knows."""
    return address_of(uri) if "://" in uri else uri


def _named(name: DatasetName) -> Event:
    return {"namespace": name.namespace, "name": name.name}


def _source(name: str, uri: str) -> Facet:
    return _facet("DatasourceDatasetFacet", "1-0-1", name=name, uri=uri)


def _fields(fields: Iterable[NestedField]) -> list[Event]:
    return [_field(field.name, field.field_type) for field in fields]


def _field(name: str, of: IcebergType) -> Event:
    """A column, or what is within one; parts of lists and maps have the names that others give them."""
    match of:
        case StructType():
            return {"name": name, "type": "struct", "fields": _fields(of.fields)}
        case ListType():
            return {"name": name, "type": "array", "fields": [_field("_element", of.element_type)]}
        case MapType():
            parts = [_field("key", of.key_type), _field("value", of.value_type)]
            return {"name": name, "type": "map", "fields": parts}
        case _:
            return {"name": name, "type": str(of)}


def _facet(name: str, version: str, /, **content: Any) -> Facet:
    return {"_producer": PRODUCER, "_schemaURL": f"{_FACETS}/{version}/{name}.json#/$defs/{name}", **content}


def _own(schema: str, /, **content: Any) -> Facet:
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}
