"""Names of topics and tables, as the conventions of OpenLineage give them, so that all programs' events meet.

A table is named by its location, as the integration of Spark names it whatever the catalog is. Its symlinks
are the names by which it is known in catalogs, and in Trino.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from thermocline.iceberg.files import local_path

if TYPE_CHECKING:
    from thermocline.settings import CatalogSettings, ViewsSettings

__all__ = ["DatasetName", "address_of", "name_of_table", "name_of_topic", "symlinks_of"]

# What stores are called, whatever Hadoop calls the ways to reach them.
_STORES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfs": "abfss",
    "abfss": "abfss",
    "wasb": "wasbs",
    "wasbs": "wasbs",
}
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class DatasetName:
    """A name, and the namespace that it is unique in."""

    namespace: str
    name: str


def name_of_topic(bootstrap_servers: str, topic: str) -> DatasetName:
    """Of a topic; its namespace is the first of the brokers, as in other integrations."""
    first = bootstrap_servers.partition(",")[0].strip()
    return DatasetName(f"kafka://{first.rpartition('://')[2]}", topic)


def name_of_table(location: str) -> DatasetName:
    """Of a table at that location, a URI or a path."""
    local = local_path(location)
    if local is not None:
        return DatasetName("file", local.rstrip("/") or "/")
    scheme, _, rest = location.partition("://")
    store, _, path = rest.partition("/")
    if scheme in _STORES:
        return DatasetName(f"{_STORES[scheme]}://{store}", path.strip("/") or "/")
    return DatasetName(f"{scheme}://{store}", f"/{path}".rstrip("/") or "/")


def symlinks_of(catalog: CatalogSettings, views: ViewsSettings, identifier: str) -> Iterator[DatasetName]:
    """The other names of a table: in its catalog, and in Trino where views are published there."""
    match catalog.type:
        case "hive":
            first = urlsplit(catalog.uri.split(",")[0])
            yield DatasetName(f"hive://{first.netloc.rpartition('@')[2]}", identifier)
        case "glue":
            properties = catalog.properties
            region = properties.get("glue.region") or properties.get("client.region")
            account = properties.get("glue.id")
            if region and account:
                name = f"table/{identifier.replace('.', '/')}"
                yield DatasetName(f"arn:aws:glue:{region}:{account}", name)
        case _:
            yield DatasetName(address_of(catalog.uri), identifier)
    if views.enabled:
        trino = urlsplit(views.url)
        host = f"[{trino.hostname}]" if ":" in (trino.hostname or "") else trino.hostname
        yield DatasetName(
            f"trino://{host}:{trino.port or _PORTS[trino.scheme]}", f"{views.lake}.{identifier}"
        )


def address_of(uri: str) -> str:
    """A URI without what could be a secret: its user, password, query and fragment."""
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]  # without the driver that SQLAlchemy takes
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # safety: lineage-without-secrets
