"""Reach Iceberg's Java library: through Spark's JVM, or a small one of our own where Spark isn't needed."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from thermocline.errors import CatalogUnreachable, EngineFailed, TableMissing
from thermocline.iceberg.catalog_properties import java_properties, stores_of
from thermocline.jvm.jars import jars_of
from thermocline.jvm.java import find_java
from thermocline.process.child_environment import without_settings
from thermocline.process.logs import fields
from thermocline.process.private_folder import process_folder

if TYPE_CHECKING:
    from thermocline.settings import CatalogSettings

# With a Spark session, PySpark turns some of Java's exceptions into its own; a JVM that died is a connection
# that broke.
JAVA_ERRORS = (Py4JError, PySparkException, ConnectionError)  # safety: jvm-died
NO_SUCH_TABLE = "org.apache.iceberg.exceptions.NoSuchTableException"

_logger = logging.getLogger(__name__)

# Enough for a catalog and one table's metadata.
_HEAP = "-Xmx512m"
# A terminal's Ctrl-C and systemd's SIGTERM go to children, too: the JVM would end in the middle of a commit.
_WITHOUT_SIGNALS = ("/bin/sh", "-c", 'trap "" INT TERM; exec "$@"', "sh")
# A JVM without work ends in a fraction of a second.
_END_SECONDS_MAX = 10.0


class JavaCatalog:
    """Our catalog in Iceberg's Java library. ``jvm`` is a py4j view of any JVM that has Iceberg."""

    def __init__(self, jvm: Any, settings: CatalogSettings) -> None:
        self.jvm = jvm
        self._uri = settings.uri
        theirs = java_properties(settings)
        if theirs.left_out:
            _logger.info(
                "catalog properties that Java does not have", extra=fields(names=list(theirs.left_out))
            )
        with self.errors():
            properties = jvm.java.util.HashMap()
            for name, value in theirs.values.items():
                properties.put(name, value)
            self._catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
                settings.name, properties, jvm.org.apache.hadoop.conf.Configuration()
            )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Java's errors within the block become `CatalogUnreachable`."""
        try:
            yield
        except JAVA_ERRORS as error:
            raise CatalogUnreachable(uri=self._uri, detail=first_line(error)) from error

    def load(self, identifier: str, name: str = "") -> Any:
        """The ``org.apache.iceberg.Table``. Raises `TableMissing` and `CatalogUnreachable`.

        ``name`` is what the configuration calls it, for the commands that errors print.
        """
        try:
            with self.errors():
                return self._catalog.loadTable(self._identifier(identifier))
        except CatalogUnreachable as error:
            if class_name(error.__cause__) == NO_SUCH_TABLE:
                raise TableMissing(table=name or identifier, identifier=identifier) from error
            raise

    def create(
        self, identifier: str, schema_json: str, bucket: tuple[str, int], properties: dict[str, str]
    ) -> Any:
        """A transaction that creates a table partitioned by ``bucket`` (column, count) when it commits.

        What it raises is Java's: see `errors`.
        """
        iceberg = self.jvm.org.apache.iceberg
        schema = iceberg.SchemaParser.fromJson(schema_json)
        spec = iceberg.PartitionSpec.builderFor(schema).bucket(bucket[0], bucket[1], "bucket").build()
        builder = self._catalog.buildTable(self._identifier(identifier), schema).withPartitionSpec(spec)
        for name, value in properties.items():
            builder = builder.withProperty(name, value)
        return builder.createTransaction()

    def _identifier(self, identifier: str) -> Any:
        return self.jvm.org.apache.iceberg.catalog.TableIdentifier.parse(identifier)


def class_name(error: BaseException | None) -> str:
    """The Java class of an error that Java raised; empty for others."""
    with suppress(*JAVA_ERRORS):  # as when the JVM has died since
        if isinstance(error, Py4JJavaError):
            return str(error.java_exception.getClass().getName())
    return ""


def first_line(error: Exception) -> str:
    """What an error says, in Java's words where they are Java's; its class where it says nothing."""
    said = ""
    with suppress(*JAVA_ERRORS):  # as when the JVM has died since
        said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return said.partition("\n")[0] or type(error).__name__


def catalog_jars(settings: CatalogSettings) -> tuple[Path, ...]:
    """Iceberg's library, the driver of the database that the catalog is in, and the clients of its stores."""
    is_postgres = settings.type == "sql" and settings.uri.startswith("postgresql")
    groups = ["spark", *(["postgresql"] if is_postgres else []), *_clients_of(settings)]
    return tuple(jar for group in groups for jar in jars_of(group))


def _clients_of(settings: CatalogSettings) -> list[str]:
    """The groups of jars with the clients of clouds that a catalog needs."""
    needed = stores_of(settings) | ({"s3"} if settings.type == "glue" else set())
    return sorted(needed & {"s3"})


@contextmanager
def small_jvm(settings: CatalogSettings) -> Iterator[Any]:
    """A JVM with Iceberg and without a Spark session, up in about a second; ends with the block.

    Blocks of one process that run at the same time share it. Raises `EngineFailed` where it does not come up.
    """
    jars = catalog_jars(settings)
    with _lock:
        if jars not in _running:
            _running[jars] = _SmallJvm(jars, "local" in stores_of(settings))
        jvm = _running[jars]
        jvm.users += 1
    try:
        yield jvm.gateway.jvm
    finally:
        with _lock:
            jvm.users -= 1
            if not jvm.users:
                del _running[jars]
                jvm.stop()


class _SmallJvm:
    """``users`` counts the blocks that use it."""

    def __init__(self, jars: Sequence[Path], writes_locally: bool) -> None:
        self.users = 0
        # The Iceberg runtime brings itself; Hadoop's file systems, its logging and py4j come with Spark.
        class_path = [*jars, Path(pyspark.__file__).parent / "jars" / "*"]
        java = [str(find_java().executable), "-classpath", ":".join(str(path) for path in class_path)]
        temporary = f"-Djava.io.tmpdir={process_folder()}"  # it stages there what goes to a store
        options = [_HEAP, temporary, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        # Not by py4j's launcher, which loses the process of a JVM that does not come up.
        self._process = subprocess.Popen(
            [
                *_WITHOUT_SIGNALS,
                *java,
                *options,
                "py4j.GatewayServer",
                "--die-on-broken-pipe",
                "--enable-auth",
                "0",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=without_settings(os.environ),
        )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        port, token = (self._output.readline().decode().strip() for _ in range(2))
        if not port.isdecimal():
            self._process.communicate()
            raise EngineFailed(engine="the JVM", detail=f"it ended as it started {port}".rstrip())
        threading.Thread(target=self._discard_output, daemon=True).start()
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        )
        logging.getLogger("py4j").setLevel(logging.WARNING)
        if writes_locally:
            try:
                self._write_no_checksum_files()
            except JAVA_ERRORS as error:
                self.stop()
                raise EngineFailed(engine="the JVM", detail=first_line(error)) from error

    def _write_no_checksum_files(self) -> None:
        """Beside files on local disks: PyIceberg would not delete them with these.

        Hadoop gives the first local file system that it makes to all. Spark's JVM needs the usual one.
        """
        jvm = self.gateway.jvm
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        configuration.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI.create("file:///"), configuration)

    def _discard_output(self) -> None:
        """Until it ends: a full pipe would stop it."""
        with self._output:
            for _ in self._output:
                pass

    def stop(self) -> None:
        self.gateway.shutdown()
        self._input.close()  # it lives for as long as that is open
        try:
            self._process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()


_running: dict[tuple[Path, ...], _SmallJvm] = {}
"""By the jars that a catalog needs."""
_lock = threading.Lock()
