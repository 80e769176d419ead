"""The checks of ``thermocline doctor``, in their order: each source before what hangs on it."""

from __future__ import annotations

from typing import Final

from thermocline.doctor import (
    clocks,
    configuration,
    disks,
    kafka,
    keys,
    lake,
    machine,
    tables,
    topics,
    versions,
)
from thermocline.doctor.check import CONFIGURATION, Check

__all__ = ["CHECKS"]

_KAFKA: Final = ("configuration", "kafka")
_LOG: Final = (*_KAFKA, "topics")
_CATALOG: Final = ("configuration", "catalog")
# Samples wait for brokers as long as a read may stall, and some more to decode.
_SAMPLE_SECONDS: Final = 45.0
_LAYOUT_SECONDS: Final = 60.0

CHECKS: Final = (
    Check(
        CONFIGURATION,
        "Is the configuration right, and can its folders be written?",
        configuration.configuration,
        needs=(),
        is_open=lambda one: one.read_settings is not None,
    ),
    Check("python", "Do Python and its packages have the versions that were tested?", versions.packages, ()),
    Check("java", "Is there a Java that ingest runs on?", versions.java, ()),
    Check("memory", "Does what the settings allow fit the memory?", machine.memory),
    Check("open files", "May enough files and sockets be open?", machine.open_files, ()),
    Check("disks", "Have the disks room?", disks.disks),
    Check("port", "Does the server listen at its port, or could it?", machine.port),
    Check("kafka", "Do the brokers answer?", kafka.brokers, is_open=lambda one: one.log is not None),
    Check("topics", "Are the topics there?", kafka.topics, _KAFKA, is_open=lambda one: bool(one.topics)),
    Check("rights", "May the user do with the topics what it takes?", kafka.rights, _KAFKA),
    Check("registry", "Does the schema registry answer?", kafka.registry),
    Check(
        "catalog",
        "Does the catalog answer?",
        lake.catalog,
        is_open=lambda one: one.is_catalog_known,
    ),
    Check("catalog rights", "May we commit?", lake.catalog_rights, _CATALOG),
    Check("store", "Can files be written, read and deleted?", lake.store, _CATALOG),
    Check("catalog version", "Which database or server is the catalog?", versions.catalog_version, _CATALOG),
    Check("trino", "Is Trino one that views were tested on?", versions.trino),
    Check("tables", "Are the tables there, and as the file defines them?", lake.tables, _CATALOG),
    Check("clocks", "Do clocks agree?", clocks.clocks),
    Check("log", "Does the log hold all from the tables' seams on?", tables.against_log, (*_LOG, "tables")),
    Check("retention", "How long do records wait for ingest?", topics.retention, _LOG),
    Check("tombstones", "How long do deletes stay in compacted topics?", topics.tombstones, _LOG),
    Check("compaction lag", "How long do records stay that later ones replace?", topics.compaction_lag, _LOG),
    Check("message bytes", "Is each record that a topic takes one that is read?", topics.message_bytes, _LOG),
    Check("cores", "Are there enough partitions and buckets for the cores?", machine.cores, _LOG),
    Check(
        "records",
        "Are the newest records such as the tables take? (a sample)",
        keys.records,
        _LOG,
        seconds_max=_SAMPLE_SECONDS,
    ),
    Check(
        "scattered keys",
        "Is a key in several partitions? (a sample)",
        keys.scattered,
        _LOG,
        seconds_max=_SAMPLE_SECONDS,
    ),
    Check(
        "spelled keys",
        "Is a key spelled in several ways? (a sample)",
        keys.spelled_twice,
        _LOG,
        seconds_max=_SAMPLE_SECONDS,
    ),
    Check(
        "undeclared fields",
        "Which fields of records is no column read from?",
        tables.undeclared,
        (*_CATALOG, "tables"),
        seconds_max=_SAMPLE_SECONDS,
    ),
    Check(
        "schema changes",
        "Do contracts let in what producers write?",
        tables.schema_changes,
        (*_CATALOG, "tables"),
        seconds_max=_SAMPLE_SECONDS,
    ),
    Check(
        "layout",
        "Do files lie as reads want them?",
        tables.layout,
        (*_CATALOG, "tables"),
        seconds_max=_LAYOUT_SECONDS,
    ),
    Check(
        "hot window",
        "For how long can ingest stand still?",
        disks.hot_window,
        _LOG,
        seconds_max=_SAMPLE_SECONDS,
    ),
    Check("unused settings", "Which settings have no effect?", configuration.unused),
)
