"""The settings as types: one frozen tree, with defaults, bounds, and a printed form without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SecretStr,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from thermocline.errors import ConfigInvalid, UnknownTable
from thermocline.process.masking import MASK, mask_password
from thermocline.rules.avro_schema import SchemaInvalid
from thermocline.rules.column_types import NESTED_SPELLED
from thermocline.rules.definition import (
    BINARY_ENCODINGS,
    RECORD_BYTES_MAX,
    TOMBSTONE_RETENTION_HOURS,
    UNAVAILABLE,
    LiveTable,
)
from thermocline.schemas.protobuf_compiler import CompilerFailed, compiled_file
from thermocline.schemas.registry import SchemaRegistry

SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)?", re.IGNORECASE)
SIZE_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
WORKERS_MAX: Final = 64  # beyond it a machine's cores are shared by processes that only wait for each other
TAILERS_MAX: Final = 64  # the same holds for them
# Each running extract takes up to 256 MB and two threads; a waiting one is an open connection.
EXTRACTS_MAX: Final = 64
EXTRACTS_WAITING_MAX: Final = 1_024

ROWS_BYTES_MIN: Final = 16_000_000  # below it, four files can't hold the rows of a large entity each

SQL_MEMORY_BYTES_MIN: Final = 50_000_000  # below it, DuckDB can't even sort what fits its buffers

LEASE_SECONDS_MIN: Final = 1.0  # below it, an owner that swaps or collects garbage is taken for dead


class PassThrough(dict[str, str]):
    """Another program's settings, by its names. Values may be secrets, so none is ever shown."""

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, MASK))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema()
        return core_schema.no_info_after_validator_function(cls, core_schema.dict_schema(text, text))


def size_of(value: object) -> object:
    """Bytes of ``"8GB"`` (10^9) or ``"8GiB"`` (2^30); what is no text as it is. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    match = SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f'"{value}" is not a size such as "512MB" or "8GiB"')
    unit = (match[2] or "").lower().removesuffix("b")
    step = 1024 if unit.endswith("i") else 1000
    return int(float(match[1]) * step ** SIZE_UNITS[unit.removesuffix("i")])


def _names(value: object) -> object:
    """A tuple of names; a variable holds them with commas between."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _start(value: object) -> object:
    """``earliest``, ``latest`` or an ISO 8601 time with its zone."""
    text = value.isoformat() if isinstance(value, date) else value
    if text in ("earliest", "latest") or not isinstance(text, str):
        return text
    try:
        zoned = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        raise ValueError(f'"{text}" is not earliest, latest or an ISO 8601 time') from None
    if not zoned:
        raise ValueError(f'the time "{text}" needs a zone, such as {text}Z')
    return text


def _column(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and all(
        isinstance(part, str) or (name == "path" and _is_list_of_names(part)) for name, part in value.items()
    ):
        return value
    hint = f"; {NESTED_SPELLED}" if isinstance(value, dict | list) else ""
    raise ValueError(f'a column is a type such as "int", or {{ type = "timestamptz", epoch = "ms" }}{hint}')


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _delete_when(value: object) -> object:
    if isinstance(value, dict) and all(
        isinstance(one, str) or _is_list_of_names(one) for one in value.values()
    ):
        return value
    raise ValueError('delete_when is of the form { path = "op", values = ["D"] }, or with a header')


def _on_error(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and all(isinstance(part, str) for part in value.values()):
        return value
    raise ValueError('on_error is a word such as "quarantine", or { key = "fail", contract = "skip" }')


Bytes = Annotated[int, BeforeValidator(size_of), Field(gt=0)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OnErrorText = Annotated[str | dict[str, str], BeforeValidator(_on_error)]
DeleteText = Annotated[dict[str, str | list[str]], BeforeValidator(_delete_when)]
ColumnText = Annotated[str | dict[str, str | list[str]], BeforeValidator(_column)]


class _Section(BaseModel):
    """A section of the file. Its printed form shows no secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def shown(self) -> dict[str, Any]:
        """Every setting with its value, nested, fit for JSON, secrets masked."""
        return {name: _shown(value) for name, value in self}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from self.shown().items()


class KafkaSettings(_Section):
    """Where the log is. ``client`` holds librdkafka's settings by its own names."""

    bootstrap_servers: Annotated[str, Field(min_length=1)]
    client: PassThrough = PassThrough()

    def client_config(self) -> dict[str, Any]:
        """What every client of librdkafka begins with."""
        return {**self.client, "bootstrap.servers": self.bootstrap_servers}


class RegistrySettings(_Section):
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
        return SchemaRegistry(
            self.url,
            self.user,
            self.password.get_secret_value() if self.password is not None else "",
            str(self.ca_file or ""),
            self.timeout_seconds,
        )


class CatalogSettings(_Section):
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


class SparkSettings(_Section):
    """The engine of ingest. ``conf`` holds Spark's settings by its own names."""

    master: str = "local[*]"
    conf: PassThrough = PassThrough()


class IngestSettings(_Section):
    """How ingest runs. ``lease_seconds``: unrenewed for so long, a table is free for another process."""

    engine: Literal["spark", "local"] = "spark"
    nice: Annotated[int, Field(ge=0, le=19)] = 10
    lease_seconds: Annotated[float, Field(ge=LEASE_SECONDS_MIN, allow_inf_nan=False)] = 60.0


class MaintenanceSettings(_Section):
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


_Address = Annotated[str, Field(pattern=r"^[^\s:,/]+:\d{1,5}$")]
_ObjectStore = Annotated[str, Field(pattern=r"^(s3|s3a|gs|abfss?)://[^/?#]+(/[^?#]*)?$")]


class TrinoEndpointSettings(_Section):
    """The endpoint for Trino's Thrift connector; without a port there is none.

    With ``certificate_file``, ``key_file`` and ``client_ca_file`` (PEM) it speaks TLS, and answers those
    alone whose certificate is signed by that authority. ``host`` is by default that of ``[serving]``.
    Where Trino asks several servers, ``servers`` are the addresses of all, and ``address`` is this one's.
    """

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    host: Annotated[str, Field(min_length=1)] | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    servers: Annotated[tuple[_Address, ...], BeforeValidator(_names)] = ()
    address: _Address | None = None

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        if len(set(self.servers)) < len(self.servers):
            raise ValueError("servers names one of them twice")
        if self.address is not None and self.address not in self.servers:
            raise ValueError(f"address is {self.address}, and none of servers")
        return self

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if len({one is None for one in (self.certificate_file, self.key_file, self.client_ca_file)}) > 1:
            raise ValueError("TLS takes all three: certificate_file, key_file and client_ca_file")
        return self

    @property
    def has_tls(self) -> bool:
        """Whether it asks for a certificate."""
        return self.certificate_file is not None


class ServingSettings(_Section):
    """The lookup API. ``stale_after_seconds``: the age from which an answer says that it is stale.

    Beyond loopback it is served only with ``expose_without_authentication``: see `problems_of_exposure`.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    workers: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 2
    tailers: Annotated[int, Field(ge=1, le=TAILERS_MAX)] = 4
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
    expose_without_authentication: bool = False
    cors_origins: Annotated[
        tuple[Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")], ...], BeforeValidator(_names)
    ] = ()
    trino: TrinoEndpointSettings = Field(default_factory=TrinoEndpointSettings)

    @property
    def url(self) -> str:
        """Where a process of this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104  to be asked
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @model_validator(mode="after")
    def _check_jobs(self) -> Self:
        if self.extract_jobs_store is not None and self.extract_jobs_dir is None:
            raise ValueError("extract_jobs_store needs extract_jobs_dir, a folder for the jobs' records")
        return self


class SqlSettings(_Section):
    """What ``thermocline sql`` may take of this machine. ``temp_dir``: by default that of the system."""

    memory_bytes_max: Annotated[Bytes, Field(ge=SQL_MEMORY_BYTES_MIN)] = 2_000_000_000
    temp_dir: Path | None = None


class ViewsSettings(_Section):
    """The views in Trino. ``lake``, ``kafka`` and ``server`` are what Trino calls its catalogs.

    ``hot`` is where the live views read hot rows: from Kafka, or from ``serve`` at ``server_address``.
    ``server_ca_file`` and ``server_key_file`` are PEM files of Trino's machine, where that speaks TLS.
    """

    enabled: bool = False
    url: Annotated[str, Field(pattern=r"^https?://[^/@]+/?$")] = "http://localhost:8080"
    user: Annotated[str, Field(min_length=1)] = "thermocline"
    password: SecretStr | None = None
    lake: Annotated[str, Field(min_length=1)] = "lake"
    kafka: Annotated[str, Field(min_length=1)] = "kafka"
    hot: Literal["kafka", "server"] = "kafka"
    server: Annotated[str, Field(min_length=1)] = "hot"
    server_address: _Address | None = None
    server_ca_file: Annotated[str, Field(min_length=1)] | None = None
    server_key_file: Annotated[str, Field(min_length=1)] | None = None
    margin_seconds: Seconds = 2.0

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.server_ca_file is None) != (self.server_key_file is None):
            raise ValueError("TLS takes both: server_ca_file and server_key_file")
        return self

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        if self.password is not None and not self.url.startswith("https://"):
            raise ValueError("a password is sent over https only: correct views.url, or leave it out")
        return self


class TableSettings(_Section):
    """One live table: where it is, its definition as the file has it, how to ingest it, and its views.

    Of the latter two are the commit interval, the bounds of a batch, those of its errors, the dead-letter
    topic, and what begins with ``view``: they are not part of the definition, and may differ from one run to
    the next.
    """

    identifier: str
    topics: Names
    start: Annotated[str, BeforeValidator(_start)] = "earliest"
    format: str = "json"
    key: Names
    key_from: str = "key"
    key_format: str | None = None
    envelope: str = "plain"
    delete_when: DeleteText | None = None
    entity: Names = ()
    buckets: int = 16
    format_version: int = 3
    commit_interval_seconds: Seconds = 60.0
    batch_records_max: Annotated[int, Field(gt=0)] = 2_000_000
    batch_bytes_max: Bytes = 512_000_000
    on_error: OnErrorText = "quarantine"
    errors_ratio_max: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    errors_count_max: Annotated[int, Field(ge=0)] | None = None
    dead_letter_topic: str | None = None
    transactional: bool = False
    suppress_unchanged: bool = False
    key_schema_file: Path | None = None
    value_schema_file: Path | None = None
    key_message: str | None = None
    value_message: str | None = None
    schema_framed: bool = False
    partial_updates: bool = False
    sequence_by: Names = ()
    tombstone_retention_hours: int = TOMBSTONE_RETENTION_HOURS
    unavailable_value_placeholder: str = UNAVAILABLE
    binary_encoding: str = BINARY_ENCODINGS[0]
    require_fields: bool = True
    record_bytes_max: Bytes = RECORD_BYTES_MAX
    views: Annotated[tuple[Literal["live", "live_by_key", "cold"], ...], BeforeValidator(_names)] = (
        "live",
        "live_by_key",
        "cold",
    )
    views_bounded: bool = False
    view_filter: Annotated[str, Field(min_length=1)] | None = None
    columns: dict[str, ColumnText]

    @model_validator(mode="after")
    def _check_dead_letter_topic(self) -> Self:
        if self.dead_letter_topic in self.topics:  # safety: dead-letters-elsewhere
            raise ValueError(f'dead_letter_topic is "{self.dead_letter_topic}", which feeds the table itself')
        return self

    def definition(self, name: str) -> LiveTable:
        """The definition that the file asks for. Raises `ConfigInvalid` with all its problems."""
        given = {option: getattr(self, option) for option in _OPTIONS}
        for part, format_ in (("key", self.key_format or self.format), ("value", self.format)):
            setting = f"{part}_schema_file"
            given[f"{part}_schema"] = _schema_of(name, format_, setting, getattr(self, setting))
        return LiveTable.build(name=name, **given)


_OPTIONS: Final = tuple(
    option.name for option in fields(LiveTable) if option.name in TableSettings.model_fields
)
"""The settings of a table that are part of its definition."""


class Settings(_Section):
    """All settings. Build it with ``load_settings`` in ``main`` and pass it down."""

    kafka: KafkaSettings
    catalog: CatalogSettings
    registry: RegistrySettings = RegistrySettings()
    spark: SparkSettings = SparkSettings()
    ingest: IngestSettings = IngestSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    serving: ServingSettings = ServingSettings()
    sql: SqlSettings = SqlSettings()
    views: ViewsSettings = ViewsSettings()
    tables: dict[str, TableSettings] = {}

    def table(self, name: str) -> TableSettings:
        """One table's settings. Raises `UnknownTable`."""
        if name not in self.tables:
            raise UnknownTable(table=name, known=tuple(sorted(self.tables)))
        return self.tables[name]


def _schema_of(table: str, format_: str, setting: str, path: Path | None) -> str | None:
    """The schema in a file that a setting names, as definitions have it. Raises `ConfigInvalid`."""
    if path is None:
        return None
    try:
        if format_ == "protobuf":
            from thermocline.rules.protobuf_schema import packed_schema  # noqa: PLC0415  (takes long to load)

            return packed_schema(compiled_file(path))
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    except (SchemaInvalid, CompilerFailed) as error:
        problem = f"can't be compiled: {error}"
    except OSError as error:
        problem = f"can't be read: {error.strerror or type(error).__name__}"
    raise ConfigInvalid(of=f"of table {table}", problems=(f"{setting}: {path} {problem}",))


def _shown(value: object) -> Any:
    match value:
        case _Section():
            return value.shown()
        case PassThrough():
            return dict.fromkeys(value, MASK)
        case SecretStr():
            return MASK
        case dict():
            return {name: _shown(part) for name, part in value.items()}
        case tuple():
            return list(value)
        case str() | Path():
            return mask_password(str(value))
        case _:
            return value
