"""A real REST catalog of our own, for the demo and the tests: Iceberg's own server for tests of clients.

It keeps the pointers in an SQLite file, and tables in the S3 store that it is given, else in a folder. It
checks a commit's requirements by the code of Iceberg's library. Its tokens are of any credential: it guards
nothing.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from thermocline.dev.java_server import JVM_FLAGS, JavaServer
from thermocline.dev.s3 import LocalS3
from thermocline.iceberg.catalog_properties import java_properties
from thermocline.jvm.jars import Report, in_silence, jars_of
from thermocline.jvm.java import find_java
from thermocline.settings import CatalogSettings, PassThrough


class RestAddress(Protocol):
    """Where a REST catalog is, and what the configuration's `[catalog] properties` say of it."""

    @property
    def url(self) -> str:
        """Its address."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties."""
        ...


class LocalRestCatalog(JavaServer):
    """One catalog on a store; what it knows stays in `folder`. It listens to the whole network.

    with LocalS3(folder / "s3") as store, LocalRestCatalog(folder / "rest", store) as catalog:
        CatalogSettings(type="rest", uri=catalog.url, properties=catalog.properties)
    """

    def __init__(
        self,
        folder: Path,
        store: LocalS3 | None = None,
        *,
        warehouse: str = "warehouse",
        port: int | None = None,
        vends_credentials: bool = False,
        report: Report = in_silence,
    ) -> None:
        """Takes the folder; fetches the server if need be.

        Args:
            store: Where it keeps tables, else in its folder.
            warehouse: Below which it keeps them there.
            vends_credentials: Whether clients get the store's keys with each table.

        Raises:
            DependencyMissing: no Java that fits, or jars that could not be fetched.
        """
        super().__init__(folder, "the embedded REST catalog", port)
        self._java = find_java()
        jars = jars_of("rest-server", java=self._java, report=report)
        self._classpath = ":".join(map(str, [*jars, *_hadoop()]))
        self._store = store
        self._warehouse = warehouse
        self._vends_credentials = vends_credentials

    @property
    def properties(self) -> dict[str, str]:
        """The configuration's `[catalog] properties`; without the store's keys where they are vended."""
        ours = self._store.properties if self._store else {}
        return {name: ours[name] for name in ours if not (self._vends_credentials and "-key" in name)}

    @property
    def probe_path(self) -> str:
        """See `JavaServer`."""
        return "/v1/config"

    def command(self) -> list[str]:
        """See `JavaServer`."""
        return [
            str(self._java.executable),
            *JVM_FLAGS,
            *("-cp", self._classpath, "org.apache.iceberg.rest.RESTCatalogServer"),
        ]

    def environment(self) -> Mapping[str, str]:
        """See `JavaServer`."""
        place = (self.folder / self._warehouse).as_uri()
        if self._store:
            place = self._store.location(self._warehouse)
        properties = PassThrough(self._store.properties if self._store else {})
        store = CatalogSettings(uri="sqlite:///", warehouse=place, properties=properties)
        names = {
            **java_properties(store).values,
            "uri": f"jdbc:sqlite:{self.folder / 'catalog.db'}?busy_timeout=30000",
            **({"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"} if self._store else {}),
            "include-credentials": str(self._vends_credentials).lower(),
            "rest.port": str(self.port),
        }
        del names["type"]
        return {**os.environ, **{_variable(name): value for name, value in names.items()}}


def _variable(name: str) -> str:
    """What the server reads a catalog's property from."""
    return "CATALOG_" + name.replace("-", "__").replace(".", "_").upper()


def _hadoop() -> list[Path]:
    """Of Spark's jars, those with Hadoop's configuration, which Iceberg's library wants."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return sorted((Path(found.origin).parent / "jars").glob("hadoop-client-*.jar"))
