"""The files that Trino needs for the views: what `thermocline views config DIR` writes.

They belong into Trino's folder `etc`, by the names given here; paths in them are relative to the folder
that `etc` stands in, as Trino has it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from thermocline.errors import BadParameter, ConfigInvalid
from thermocline.settings import Settings
from thermocline.text.shown import json_text
from thermocline.views.access import Names, rules
from thermocline.views.guide import guide
from thermocline.views.kafka_client import client_properties
from thermocline.views.lake import lake_properties
from thermocline.views.limits import resource_groups, session_properties
from thermocline.views.properties import Translation, rendered, variable_of
from thermocline.views.topics import SCHEMA, description, table_name

LIVE_PREFIX: Final = "/iceberg"
"""Of the live catalog, on the server's port."""
_LIVE_TOKEN: Final = "iceberg.rest-catalog.oauth2.token"  # noqa: S105  # a property's name
_CATALOG_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class TrinoFiles:
    """What to write, and what has to be known beside it.

    Attributes:
        files: The text of each file by its path below `etc`.
        secrets: What Trino's environment has to hold, by variable. No file has a secret in it.
        left_out: Settings of ours without a counterpart in Trino, each with a reason.
    """

    files: Mapping[str, str]
    secrets: Mapping[str, str]
    left_out: Mapping[str, str]

    def __repr__(self) -> str:
        return f"TrinoFiles(files={list(self.files)}, secrets={list(self.secrets)}, left_out={self.left_out})"


def trino_files(settings: Settings, names: Names | None = None) -> TrinoFiles:
    """Gives the files for all tables of the configuration. Asks nobody."""
    names = replace(
        names or Names(),
        live=settings.views.live if has_live_tables(settings) else None,
    )
    _check_names(names)
    topics = sorted({topic for table in settings.tables.values() for topic in table.topic_names})
    lake = lake_properties(settings.catalog, names.lake)
    client = client_properties(settings.kafka, names.kafka)
    live = live_properties(settings, lake.plain, names.live or "")
    secrets = {**lake.secrets, **client.secrets, **live.secrets}
    left_out = {
        **{f"catalog.properties.{name}": reason for name, reason in lake.left_out.items()},
        **{f"kafka.client.{name}": reason for name, reason in client.left_out.items()},
    }
    files = {
        f"catalog/{names.lake}.properties": rendered(lake.plain),
        f"catalog/{names.kafka}.properties": rendered(
            kafka_properties(settings.kafka.bootstrap_servers, topics)
        ),
        # safety: trino-descriptions
        **{f"kafka/{table_name(topic)}.json": description(topic) for topic in topics},
        **({f"catalog/{names.live}.properties": rendered(live.plain)} if names.live else {}),
        "kafka-client.properties": rendered(client.plain),
        **_switched_on("access-control", {"access-control.name": "file"}, "security.config-file"),
        "access-control.json": rules(names, [table.identifier for table in settings.tables.values()], topics),
        **_switched_on("resource-groups", {"resource-groups.configuration-manager": "file"}),
        "resource-groups.json": resource_groups(names.publisher),
        **_switched_on(
            "session-property-config",
            {"session-property-config.configuration-manager": "file"},
            "session-property-manager.config-file",
        ),
        "session-property-config.json": session_properties(),
        "README.md": guide(names, topics, secrets, left_out),
    }
    return TrinoFiles(files, secrets, left_out)


def _check_names(names: Names) -> None:
    """Raises `ConfigInvalid` for a catalog whose name, as that of a file, would lead out of the folder."""
    catalogs = (name for name in (names.lake, names.kafka, names.live) if name is not None)
    problems = tuple(
        f"{json_text(name)} is not the name of a catalog of Trino: it takes letters, digits, _ and -"
        for name in catalogs
        if _CATALOG_NAME.fullmatch(name) is None  # safety: trino-config-plain-names
    )
    if problems:
        raise ConfigInvalid(of="[views]", problems=problems)


def write_files(trino: TrinoFiles, folder: Path) -> None:
    """Writes them below a folder, which may exist; replaces those of before, each at once.

    Raises `BadParameter` where the folder can't be written.
    """
    for path, text in trino.files.items():
        place = folder / path
        unfinished = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(place)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()
            problem = f"{place} can't be written: {error.strerror or error}"
            raise BadParameter(name="DIR", problem=problem) from error


def kafka_properties(
    bootstrap_servers: str, topics: Iterable[str], descriptions: str = "etc/kafka"
) -> dict[str, str]:
    """Gives the properties of a catalog with a table for each topic, described in that folder."""
    servers = [server.strip().rpartition("://")[2] for server in bootstrap_servers.split(",")]
    return {
        "connector.name": "kafka",
        "kafka.nodes": ",".join(servers),
        "kafka.default-schema": SCHEMA,
        "kafka.table-names": ",".join(f"{SCHEMA}.{table_name(topic)}" for topic in topics),
        "kafka.table-description-dir": descriptions,
        "kafka.config.resources": "etc/kafka-client.properties",
        "kafka.messages-per-split": "100000",
        "kafka.buffer-size": "1MB",
    }


def has_live_tables(settings: Settings) -> bool:
    """Whether a server has live tables: this configuration's, or one that has a configuration of its own."""
    return settings.serving.catalog.enabled or settings.views.live_uri is not None


def live_properties(settings: Settings, lake: Mapping[str, str], name: str) -> Translation:
    """Gives the properties of the catalog of live tables, whose files are where those of the lake are."""
    serving, key = settings.serving, settings.views.live_key
    uri = settings.views.live_uri or f"{serving.scheme}://{serving.host}:{serving.port}{LIVE_PREFIX}"
    store = {name: value for name, value in lake.items() if not name.startswith("iceberg.")}
    found = Translation(store | {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": uri})
    if key is not None:
        variable = variable_of(name, _LIVE_TOKEN)
        found.plain["iceberg.rest-catalog.security"] = "OAUTH2"
        found.plain[_LIVE_TOKEN] = f"${{ENV:{variable}}}"  # safety: trino-live-key
        found.secrets[variable] = key.get_secret_value()
    return found


def _switched_on(name: str, manager: Mapping[str, str], setting: str | None = None) -> dict[str, str]:
    """The small file that makes Trino read the one with the rules."""
    file = {setting or f"{name}.config-file": f"etc/{name}.json"}
    return {f"{name}.properties": rendered({**manager, **file})}
