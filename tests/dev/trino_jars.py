"""A newer Trino, put together from the jars on Maven Central: it reads format version 3, and has no Kafka.

Since 477 neither the server's archive nor its Kafka connector is published there, but the jars of the
server and of the Iceberg connector are. What is missing is the class that starts it, and the file by which
a connector is found.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.dev.java_class import class_that_calls
from thermocline.jvm.cache import cache_folder, made_once
from thermocline.jvm.jars import Report, in_silence, jars_of, locked_jars
from thermocline.jvm.java import JavaHome

VERSION: Final = "483"
MAIN: Final = "io.trino.server.StartWithVersion"

_GROUPS: Final = {"lib": "trino-483-server", "plugin/iceberg": "trino-483-iceberg"}
_SERVICE: Final = "META-INF/services/io.trino.spi.Plugin"
_CONNECTOR: Final = "io.trino.plugin.iceberg.IcebergPlugin"
_DIGEST_CHARACTERS: Final = 12
_LOCK: Final = Path(__file__).with_name("trino_483.lock")


def iceberg_tree(*, java: JavaHome, report: Report = in_silence, cache: Path | None = None) -> Path:
    """Gives the folder with `lib` and `plugin`; see `trino_tree`, which this is like.

    Raises:
        DependencyMissing: a jar could not be fetched, or is not what the lock names.
    """

    def make(tree: Path) -> None:
        report(f"fetching Trino {VERSION} (480 MB; this time only)")
        for folder, group in _GROUPS.items():
            _link(jars_of(group, java=java, report=report, cache=cache, lock=_LOCK), tree / folder)
        start = class_that_calls(MAIN.replace(".", "/"), "io/trino/server/Server", "start", VERSION)
        _jar(tree / "lib" / "start.jar", f"{MAIN.replace('.', '/')}.class", start)
        _jar(tree / "plugin" / "iceberg" / "service.jar", _SERVICE, _CONNECTOR.encode())

    return made_once((cache or cache_folder()) / "trino" / _name(), make)


def _name() -> str:
    text = repr([locked_jars(_LOCK)[group] for group in _GROUPS.values()])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def _link(jars: Iterable[Path], folder: Path) -> None:
    folder.mkdir(parents=True)
    for jar in jars:
        os.link(jar, folder / jar.name)


def _jar(path: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr(name, content)
