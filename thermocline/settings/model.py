"""The settings as types: one frozen tree, with defaults, bounds, and a printed form without secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from thermocline.errors import UnknownTable
from thermocline.rules.routes.names import is_denied
from thermocline.settings.limits import Limits
from thermocline.settings.lineage import LineageSettings
from thermocline.settings.route import RouteSettings, table_of_value
from thermocline.settings.section import PassThrough, Section
from thermocline.settings.table import TableSettings
from thermocline.settings.values import Bytes, HostName, Network, Seconds, names_of

if TYPE_CHECKING:
    from thermocline.rules.routes.own_columns import OwnColumns
    from thermocline.schemas.registry import SchemaRegistry

# Of an API process: far more than it answers at once.
CONNECTIONS_MAX: Final = 5_000
# From the connection, or a request's first byte, to its last: no body is larger than a batch.
REQUEST_SECONDS_MAX: Final = 60.0
WORKERS_MAX: Final = 64  # beyond it a machine's cores are shared by processes that only wait for each other
TAILERS_MAX: Final = 64  # the same holds for them
# Each running extract takes up to 256 MB and two threads; a waiting one is an open connection.
EXTRACTS_MAX: Final = 64
EXTRACTS_WAITING_MAX: Final = 1_024

ROWS_BYTES_MIN: Final = 16_000_000  # below it, four files can't hold the rows of a large entity each

SQL_MEMORY_BYTES_MIN: Final = 50_000_000  # below it, DuckDB can't even sort what fits its buffers

AUDIT_ROTATE_BYTES_MIN: Final = 1_000_000  # below it, a file holds hardly more than what is written at once
AUDIT_FILES_MAX: Final = 100_000  # each rotation lists them

LEASE_SECONDS_MIN: Final = 1.0  # below it, an owner that swaps or collects garbage is taken for dead

TABLE_IN_GROUP: Final = "{table}"
GROUP_LENGTH_MAX: Final = 180  # with a table's name in it, no longer than the name of a topic may be
_GROUP: Final = r"^([A-Za-z0-9._:-]|\{table\})*$"


class KafkaSettings(Section):
    """Where the log is. ``client`` holds librdkafka's settings by its own names."""

    bootstrap_servers: Annotated[str, Field(min_length=1)]
    client: PassThrough = PassThrough()

    def client_config(self) -> dict[str, Any]:
        """What every client of librdkafka begins with."""
        return {**self.client, "bootstrap.servers": self.bootstrap_servers}


class RegistrySettings(Section):
    """The schema registry, where records name their schemas. Without a ``url`` there is none."""

    url: Annotated[str, Field(pattern=r"^(https?://[^/@\s]+(/\S*)?)?$")] = ""
    user: str = ""
    password: SecretStr | None = None
    ca_file: Path | None = None
    timeout_seconds: Seconds = 5.0

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        if self.password is not None and not self.user:
            raise ValueError("a password needs a user: set registry.user")
        if self.password is not None and not self.url.startswith("https://"):
            raise ValueError("a password is sent over https only: correct registry.url, or leave it out")
        return self

    def client(self) -> SchemaRegistry | None:
        """What asks it, if there is one."""
        if not self.url:
            return None
        from thermocline.schemas.registry import SchemaRegistry  # noqa: PLC0415  # slow; commands read settings

        return SchemaRegistry(
            self.url,
            self.user,
            self.password.get_secret_value() if self.password is not None else "",
            str(self.ca_file or ""),
            self.timeout_seconds,
        )


class CatalogSettings(Section):
    """Where the Iceberg catalog is. ``properties`` are in PyIceberg's names."""

    name: str = "lake"
    type: Literal["sql", "rest", "glue", "hive"] = "sql"
    uri: str = ""
    warehouse: str = ""
    properties: PassThrough = PassThrough()

    @model_validator(mode="after")
    def _check_needed(self) -> Self:
        needed = {"sql": ("uri", "warehouse"), "rest": ("uri",), "hive": ("uri",), "glue": ()}[self.type]
        missing = [name for name in needed if not getattr(self, name)]
        if missing:
            raise ValueError(f'a catalog of type "{self.type}" needs {" and ".join(missing)}')
        return self


class SparkSettings(Section):
    """The engine of ingest. ``conf`` holds Spark's settings by its own names."""

    master: str = "local[*]"
    conf: PassThrough = PassThrough()


class IngestSettings(Section):
    """How ingest runs. ``lease_seconds``: unrenewed for so long, a table is free for another process.

    ``mirror_group``: a consumer group that is told the seam; ``{table}`` in it is the table's name.
    """

    engine: Literal["spark", "local"] = "spark"
    nice: Annotated[int, Field(ge=0, le=19)] = 10
    lease_seconds: Annotated[float, Field(ge=LEASE_SECONDS_MIN, allow_inf_nan=False)] = 60.0
    mirror_group: Annotated[str, Field(max_length=GROUP_LENGTH_MAX, pattern=_GROUP)] = ""

    def group_of(self, table: str) -> str:
        """The consumer group that is told where that table is; empty where none is."""
        return self.mirror_group.replace(TABLE_IN_GROUP, table)


class MaintenanceSettings(Section):
    """What keeps tables fast to read, within ``ingest run`` and by ``maintain run``.

    ``snapshots_seconds``: how long a snapshot can be asked for by its id; then it leaves the metadata.
    ``files_seconds``: how much longer its files stay for those who read them.
    """

    enabled: bool = True
    target_file_bytes: Annotated[Bytes, Field(ge=1 << 20)] = 134_217_728
    snapshots_seconds: Annotated[float, Field(ge=1_200, allow_inf_nan=False)] = 14_400.0
    files_seconds: Annotated[float, Field(ge=600, allow_inf_nan=False)] = 14_400.0
    scans_per_hour: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    lookups_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0


_ObjectStore = Annotated[str, Field(pattern=r"^(s3|s3a|gs|abfss?)://[^/?#]+(/[^?#]*)?$")]


class LiveCatalogSettings(Section):
    """The tables as of now for any engine: a read-only Iceberg REST catalog below ``/iceberg``.

    ``min_interval_seconds``: how old a snapshot may be that an engine gets, as queries of that time share it.
    ``files_per_hour_max``: of a table; where more would be written, a snapshot is given for longer.
    ``load_seconds_max``: how long an engine waits for a snapshot, such as when the store does not answer.
    ``reader_properties``: of the catalog's connection, instead of ours, to ask what readers are granted.
    ``files_seconds``: how long its files stay after it was last given to an engine, so the longest query.
    """

    enabled: bool = False
    min_interval_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    files_per_hour_max: Annotated[int, Field(ge=1)] | None = None
    load_seconds_max: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 60.0
    reader_properties: PassThrough | None = None
    files_seconds: Annotated[float, Field(ge=60, allow_inf_nan=False)] = 3_600.0


class ServingSettings(Section):
    """The lookup API. ``stale_after_seconds``: the age from which an answer says that it is stale.

    With ``tls_certificate`` it speaks TLS and nothing else. ``hosts`` are the Host headers that it answers
    to, all where there are none; ``forwarded_from`` are proxies that may say for whom they ask.
    ``clients_file`` says who may ask, and for what; beyond loopback there has to be one: see
    `problems_of_exposure`.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    workers: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 2
    tailers: Annotated[int, Field(ge=1, le=TAILERS_MAX)] = 4
    connections_max: Annotated[int, Field(ge=16)] = CONNECTIONS_MAX
    connections_per_address_max: Annotated[int, Field(ge=1)] | None = None
    request_seconds_max: Annotated[float, Field(ge=1, allow_inf_nan=False)] = REQUEST_SECONDS_MAX
    state_dir: Path = Path("data/serving")
    hot_bytes_max: Bytes = 8_000_000_000
    rows_bytes_max: Annotated[Bytes, Field(ge=ROWS_BYTES_MIN)] = 1_000_000_000
    rows_ahead: bool = True
    read_after_seconds_max: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    stale_after_seconds: Seconds = 5.0
    extracts_max: Annotated[int, Field(ge=1, le=EXTRACTS_MAX)] = 4
    extracts_waiting_max: Annotated[int, Field(ge=0, le=EXTRACTS_WAITING_MAX)] = 32
    extract_jobs_dir: Path | None = None
    extract_jobs_store: _ObjectStore | None = None
    extract_jobs_retention_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 24.0
    clients_file: Path | None = None
    limits: Limits = Field(default_factory=Limits)
    cors_origins: Annotated[
        tuple[Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")], ...], BeforeValidator(names_of)
    ] = ()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    forwarded_from: Annotated[tuple[Network, ...], BeforeValidator(names_of)] = ()
    hosts: Annotated[tuple[HostName, ...], BeforeValidator(names_of)] = ()
    catalog: LiveCatalogSettings = Field(default_factory=LiveCatalogSettings)

    @property
    def url(self) -> str:
        """Where a process of this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104  to be asked
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def scheme(self) -> str:
        """``https``, or ``http`` where it has no certificate."""
        return "http" if self.tls_certificate is None else "https"

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: give both, or none")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("tls_client_ca needs tls_certificate and tls_key: clients show theirs over TLS")
        return self

    @model_validator(mode="after")
    def _check_jobs(self) -> Self:
        if self.extract_jobs_store is not None and self.extract_jobs_dir is None:
            raise ValueError("extract_jobs_store needs extract_jobs_dir, a folder for the jobs' records")
        return self


class AuditSettings(Section):
    """The audit log of the server: a line for each request that reads or changes data.

    ``path``, ``rotate_bytes`` and ``keep_files`` are of the sink ``file``, ``topic`` is of ``kafka``.
    ``required``: while the sink takes no records, the server does not answer.
    """

    sink: Literal["off", "file", "stdout", "kafka"] = "off"
    required: bool = False
    hash_key_file: Path = Path("data/audit-hash.key")
    path: Path = Path("data/audit")
    rotate_bytes: Annotated[Bytes, Field(ge=AUDIT_ROTATE_BYTES_MIN)] = 100_000_000
    keep_files: Annotated[int, Field(ge=1, le=AUDIT_FILES_MAX)] = 10
    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,249}$")] = ""

    @model_validator(mode="after")
    def _check_topic(self) -> Self:
        if self.sink == "kafka" and not self.topic:
            raise ValueError('sink = "kafka" needs audit.topic')
        if self.sink == "off" and self.required:
            raise ValueError('required = true needs a sink: set audit.sink to "file", "stdout" or "kafka"')
        return self


class SqlSettings(Section):
    """What ``thermocline sql`` may take of this machine. ``temp_dir``: by default that of the system."""

    memory_bytes_max: Annotated[Bytes, Field(ge=SQL_MEMORY_BYTES_MIN)] = 2_000_000_000
    temp_dir: Path | None = None


class ViewsSettings(Section):
    """The views in Trino. ``lake``, ``kafka`` and ``live`` are what Trino calls its catalogs.

    ``live`` has the server's live tables, and Trino reaches it at ``live_uri``, with the API key
    ``live_key``. ``hot`` is where the live views read hot rows: from Kafka, or from ``serve``, whose live
    tables they are then.
    """

    enabled: bool = False
    url: Annotated[str, Field(pattern=r"^https?://[^/@]+/?$")] = "http://localhost:8080"
    user: Annotated[str, Field(min_length=1)] = "thermocline"
    password: SecretStr | None = None
    lake: Annotated[str, Field(min_length=1)] = "lake"
    kafka: Annotated[str, Field(min_length=1)] = "kafka"
    hot: Literal["kafka", "server"] = "kafka"
    live: Annotated[str, Field(min_length=1)] = "live"
    live_uri: Annotated[str, Field(pattern=r"^https?://[^/@]+/.*$")] | None = None
    live_key: SecretStr | None = None
    margin_seconds: Seconds = 2.0

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        if self.password is not None and not self.url.startswith("https://"):
            raise ValueError("a password is sent over https only: correct views.url, or leave it out")
        return self


class Settings(Section):
    """All settings. Build it with ``load_settings`` in ``main`` and pass it down."""

    kafka: KafkaSettings
    catalog: CatalogSettings
    registry: RegistrySettings = RegistrySettings()
    spark: SparkSettings = SparkSettings()
    ingest: IngestSettings = IngestSettings()
    lineage: LineageSettings = LineageSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    serving: ServingSettings = ServingSettings()
    audit: AuditSettings = AuditSettings()
    sql: SqlSettings = SqlSettings()
    views: ViewsSettings = ViewsSettings()
    tables: dict[str, TableSettings] = Field(default_factory=dict)
    routes: dict[str, RouteSettings] = Field(default_factory=dict)

    def with_directories(self) -> Self:
        """The same, where each route's directory is one of the tables, by the route's name."""
        directories = {name: route.directory_settings() for name, route in self.routes.items()}
        return self.model_copy(update={"tables": {**self.tables, **directories}})

    def without_directories(self) -> Self:
        """The same with the tables that have rows."""
        tables = {name: table for name, table in self.tables.items() if name not in self.routes}
        return self.model_copy(update={"tables": tables})

    def with_routed(
        self, route: str, values: Iterable[str], own: Mapping[str, OwnColumns] | None = None
    ) -> Self:
        """The same, where the tables of these values of a route are among the tables, unless denied now.

        ``own`` are the columns of those that have their own.
        """
        of, columns = self.routes[route], own or {}
        allowed = (value for value in values if not is_denied(value, of.denied))
        routed = {
            table_of_value(route, value): of.table_settings(value, columns.get(value)) for value in allowed
        }
        return self.model_copy(update={"tables": {**self.tables, **routed}})

    def table(self, name: str) -> TableSettings:
        """One table's settings. Raises `UnknownTable`."""
        if name not in self.tables:
            raise UnknownTable(table=name, known=tuple(sorted(self.tables)))
        return self.tables[name]
