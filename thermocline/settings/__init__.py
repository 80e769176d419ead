"""The settings: one frozen tree, read from one TOML file and from ``THERMOCLINE_*`` variables.

    settings = load_settings()
    settings.table("profiles").commit_interval_seconds

The environment takes precedence over the file, the file over the defaults. A name that is not known is a
problem wherever it stands, all problems are reported together, and no value of a pass-through section
(``kafka.client``, ``catalog.properties``, ``spark.conf``, ``serving.catalog.reader_properties``) is ever
shown. ``model`` and ``table`` have the types, ``checks`` what a type does not say, and ``load`` the reading.
``environment`` lays the variables over the file, or what the files have that they name (``value_file``); it
does so itself, since pydantic-settings lets an unknown top-level variable pass in silence.
"""

from __future__ import annotations

from thermocline.settings.checks import problems_of_exposure, problems_of_tls
from thermocline.settings.lineage import LineageSettings
from thermocline.settings.load import (
    check_settings,
    find_file,
    load_settings,
    place_of_file,
    settings_in,
)
from thermocline.settings.model import (
    AuditSettings,
    CatalogSettings,
    IngestSettings,
    KafkaSettings,
    MaintenanceSettings,
    RegistrySettings,
    ServingSettings,
    Settings,
    SparkSettings,
    SqlSettings,
    ViewsSettings,
)
from thermocline.settings.section import PassThrough
from thermocline.settings.table import TableSettings

__all__ = [
    "AuditSettings",
    "CatalogSettings",
    "IngestSettings",
    "KafkaSettings",
    "LineageSettings",
    "MaintenanceSettings",
    "PassThrough",
    "RegistrySettings",
    "ServingSettings",
    "Settings",
    "SparkSettings",
    "SqlSettings",
    "TableSettings",
    "ViewsSettings",
    "check_settings",
    "find_file",
    "load_settings",
    "place_of_file",
    "problems_of_exposure",
    "problems_of_tls",
    "settings_in",
]
