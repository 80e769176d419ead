"""Writes ``docs/reference`` from the code: `python docs/generate.py`; with ``--check``, compares only.

Commands speak for themselves by their ``--help``, errors by their pages, metrics by their help texts, routes
by the OpenAPI document. What settings mean is said here, in `SETTINGS`; a setting without a meaning is an
error, and so is a meaning without its setting.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from prometheus_client.metrics import MetricWrapperBase
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from ingest import measures as ingest_measures
from maintenance import measures as maintenance_measures
from serving import measures
from serving.app import create_app
from serving.openapi import described
from serving.tables import Tables
from tests.mutation import places
from tests.safety_lines import LINES
from thermocline.cli.entry import all_commands
from thermocline.errors import ExitCode, ThermoclineError, all_errors
from thermocline.process import metrics
from thermocline.rules.column_types import TYPES, Kind
from thermocline.rules.definition import LiveTable
from thermocline.settings import PassThrough, ServingSettings, Settings, TableSettings
from thermocline.settings.model import Bytes, Names, OnErrorText

REFERENCE: Final = Path(__file__).parent / "reference"
NOTE: Final = "<!-- Written by docs/generate.py; `make docs` writes it again. -->"
ROUTES_BEGIN: Final = "<!-- routes: written by docs/generate.py -->"
ROUTES_END: Final = "<!-- end of routes -->"
HELP_COLUMNS: Final = 100

SETTINGS: Final[Mapping[str, str]] = {
    "kafka.bootstrap_servers": "Kafka brokers, as `host:port`, separated by commas.",
    "kafka.client": "Any librdkafka setting by its own name (SASL, TLS, ...). Quote names with dots.",
    "registry.url": (
        "URL of a Confluent-compatible schema registry, for records that name their schemas. Empty: none."
    ),
    "registry.user": "User for HTTP basic authentication. Empty: none.",
    "registry.password": "Password, sent over https only. Best set as `THERMOCLINE_REGISTRY__PASSWORD`.",
    "registry.ca_file": "File with CA certificates to trust instead of the system's.",
    "registry.timeout_seconds": "Timeout of a request. After it, reading waits and the request is repeated.",
    "catalog.name": "Name of the catalog in Spark and PyIceberg.",
    "catalog.type": "Kind of catalog. `sql` is a database supported by SQLAlchemy.",
    "catalog.uri": "Address of the catalog. Required for `sql`, `rest` and `hive`.",
    "catalog.warehouse": "Location of the tables: a folder or a URI. Required for `sql`.",
    "catalog.properties": "Further settings of the catalog and of file access, by PyIceberg's names.",
    "spark.master": "Spark master URL.",
    "spark.conf": "Any Spark setting by its own name. Overrides Thermocline's own.",
    "ingest.engine": (
        "Where a batch's tasks run: on `spark`, or `local`, one after the other in the process of `ingest"
        " run`, without Spark: for small tables."
    ),
    "ingest.lease_seconds": (
        "How long an owner may be silent before another process may take its table. It renews its lease "
        "three times in this period."
    ),
    "maintenance.enabled": "Whether `ingest run` maintains its table between batches.",
    "maintenance.target_file_bytes": "Target size of the files that a rewrite writes.",
    "maintenance.snapshots_seconds": (
        "How long snapshots are kept, for reads by snapshot id or read point. Those that a lease, tag or "
        "branch names are kept longer. At most 500 are kept."
    ),
    "maintenance.files_seconds": (
        "How much longer the files of expired snapshots are kept, for readers that still use them without a "
        "lease. Must exceed the longest query or copy."
    ),
    "maintenance.scans_per_hour": (
        "Full scans of the table per hour by other engines; used to decide which rewrites are worthwhile."
        " Servers count extracts themselves."
    ),
    "maintenance.lookups_per_second": (
        "Lookups per second, if no server counts them; used to decide which rewrites are worthwhile."
    ),
    "serving.host": "Address to listen on.",
    "serving.port": "Port to listen on.",
    "serving.workers": "Number of API processes, which share the port.",
    "serving.tailers": "Maximum number of tailer processes; with more tables, a process tails several.",
    "serving.state_dir": "Folder for the hot tier and the cold index, on a local disk.",
    "serving.hot_bytes_max": (
        "Maximum size of a table's hot tier on disk. When it is reached, the tailer pauses; a command "
        "without a server stops."
    ),
    "serving.rows_bytes_max": (
        "Maximum size on disk of the rows ready to send that the API processes share, per table. The oldest "
        "quarter is deleted when it is full."
    ),
    "serving.rows_ahead": (
        "Whether a process makes the rows of whole tables ready to send before anybody asks for them, where "
        "they fit into `serving.rows_bytes_max`."
    ),
    "serving.read_after_seconds_max": "Maximum time that a request with `Thermocline-Read-After` waits.",
    "serving.expose_without_authentication": (
        "Allow other machines to connect. Otherwise `serving.host` must be a loopback address: there is "
        "no authentication yet, so anyone who can reach the port can read every table."
    ),
    "serving.stale_after_seconds": (
        "Age from which answers are marked as stale. Live views that read hot rows from the server are "
        "refused then."
    ),
    "serving.trino.port": (
        "Port of the endpoint for Trino's Thrift connector; without it there is none. Without TLS, whoever "
        "can reach it can read the hot rows of every table."
    ),
    "serving.trino.host": (
        "Address of the endpoint. Default: `serving.host`. It may be another than a loopback address where "
        "clients need a certificate."
    ),
    "serving.trino.certificate_file": (
        "PEM file with the endpoint's certificate, and those that lead to its authority. With it, `key_file` "
        "and `client_ca_file`, the endpoint speaks TLS."
    ),
    "serving.trino.key_file": "PEM file with the key of `serving.trino.certificate_file`.",
    "serving.trino.client_ca_file": (
        "PEM file with the authority that signs clients' certificates. Clients without one are turned away."
    ),
    "serving.trino.servers": (
        "Addresses (`host:port`) of all servers that Trino asks, where there are several, as they reach each "
        "other. The same for all of them, and for who publishes the views."
    ),
    "serving.trino.address": "This server's own among `serving.trino.servers`.",
    "serving.extracts_max": (
        "Maximum number of extracts that the server streams at once, over all its workers. Each takes up to "
        "256 MB of memory and two threads."
    ),
    "serving.extracts_waiting_max": (
        "Maximum number of extracts that wait for their turn, and of extract jobs that wait for theirs. "
        "Beyond it, they are refused with `extracts-busy`."
    ),
    "serving.extract_jobs_dir": "Folder for the files of extract jobs. Default: none, and no jobs are taken.",
    "serving.extract_jobs_retention_hours": "How long a job and its files are kept after it is over.",
    "sql.memory_bytes_max": (
        "Memory that a statement of `thermocline sql` may use, besides about 300 MB for each table that it "
        "scans. Beyond it, DuckDB spills to `sql.temp_dir`."
    ),
    "sql.temp_dir": "Folder for what a statement spills. Default: the system's folder for temporary files.",
    "views.enabled": "Whether `ingest run` publishes the tables' views in Trino after each commit.",
    "views.url": "URL of Trino: `https://host:port`.",
    "views.user": "Trino user that publishes the views. They run with this user's privileges.",
    "views.password": "Password, sent over https only. Best set as `THERMOCLINE_VIEWS__PASSWORD`.",
    "views.lake": "Name of the tables' catalog in Trino.",
    "views.kafka": "Name of the Kafka catalog in Trino.",
    "views.hot": (
        "Where live views read the records that the table does not contain yet: `kafka`, or `server` for the "
        "hot tier of `thermocline serve`."
    ),
    "views.server": "Name of the catalog on the server's endpoint in Trino.",
    "views.server_address": (
        "HOST:PORT of the server's endpoint, as Trino reaches it. Default: `serving.trino.host` and "
        "`serving.trino.port`."
    ),
    "views.server_ca_file": (
        "PEM file on Trino's machine with the authority of the endpoint's certificate, where it has TLS."
    ),
    "views.server_key_file": (
        "PEM file on Trino's machine with the certificate that Trino shows to the endpoint, and its key "
        "(PKCS 8)."
    ),
    "views.margin_seconds": (
        "Minimum age of records in the view `_live`, so that both of its scans of the log see the same "
        "records. Must exceed the clock difference between Trino and the brokers, and the replication "
        "delay."
    ),
    "tables.NAME.identifier": "`namespace.table` in the catalog.",
    "tables.NAME.topics": "Topics that feed the table.",
    "tables.NAME.start": (
        "Where a new table starts reading: `earliest`, `latest` or an ISO 8601 time with time zone. Used "
        "once, by `table create`."
    ),
    "tables.NAME.format": (
        "Format of values: `json`; `avro`, `protobuf` or `json_schema`, by the writer's schema; or Kafka's "
        "`string`, `int`, `long`, `uuid` or `bytes`, if the value is one column. See "
        "[formats](../formats.md)."
    ),
    "tables.NAME.envelope": (
        "Kind of record: `plain` (a row, or its deletion), or `debezium` or `maxwell` (a change event)."
    ),
    "tables.NAME.delete_when": (
        'Which records delete their row, besides those without a value: `{ path = "op", values = ["D"] '
        "}`, or `header` instead of `path`."
    ),
    "tables.NAME.key_format": "Format of keys, if it differs from that of values.",
    "tables.NAME.key": (
        "The columns that identify a row. With `[]`, every record adds a row; this needs `key_from = "
        '"value"`, and allows extracts but no lookups.'
    ),
    "tables.NAME.key_from": (
        "Where the key columns are: in the record's `key` or `value`. Tombstones need `key`."
    ),
    "tables.NAME.entity": "The leading key columns that a lookup must specify.",
    "tables.NAME.buckets": (
        "Partitions of the table, by a hash of the entity's last column; 1 to 4,096. Can be altered to a "
        "multiple or a divisor."
    ),
    "tables.NAME.format_version": (
        "Iceberg format version: 3 has deletion vectors; use 2 for engines that can't read them."
    ),
    "tables.NAME.commit_interval_seconds": "Time between the starts of two batches, unless ingest is behind.",
    "tables.NAME.batch_records_max": "Maximum number of offsets in a batch.",
    "tables.NAME.batch_bytes_max": "Maximum size of a batch's values, estimated from the previous batch.",
    "tables.NAME.on_error": (
        "What to do with bad records: `quarantine` keeps them in the companion table, `skip` only counts "
        'them, `fail` stops ingest. One word for all, or one per stage: `{ key = "fail", contract = '
        '"skip" }`; the default for each stage is `quarantine`.'
    ),
    "tables.NAME.errors_ratio_max": (
        "Maximum share of bad records in a batch; beyond it, ingest stops. Applies from 100 bad records on."
    ),
    "tables.NAME.errors_count_max": (
        "Maximum number of bad records in a batch; beyond it, ingest stops. Empty: no limit."
    ),
    "tables.NAME.dead_letter_topic": (
        "An existing Kafka topic to which bad records are also written, with their key, value, headers "
        "and origin."
    ),
    "tables.NAME.transactional": (
        "Set to true if producers use transactions. Either way, records count only once their transaction"
        " is committed."
    ),
    "tables.NAME.suppress_unchanged": (
        "Write nothing for records that change no value of their row; the row keeps its older provenance."
    ),
    "tables.NAME.value_schema_file": (
        "File with the schema of all values, if they don't name their own: Avro's JSON, a `.proto` file or a "
        "compiled one. It becomes part of the table's definition, and can't be altered."
    ),
    "tables.NAME.key_schema_file": "The same for keys.",
    "tables.NAME.value_message": (
        "Full name of the Protobuf message in that file that all values are. Empty: the only one."
    ),
    "tables.NAME.key_message": "The same for keys.",
    "tables.NAME.schema_framed": (
        "With such a file: records nevertheless name a schema, before the body or in a header, which is "
        "ignored."
    ),
    "tables.NAME.partial_updates": (
        "A column whose field is missing in a record's value keeps its value; null sets null. In Debezium's "
        "events, so does one with the placeholder of a value that is not there. Not on compacted topics; "
        "can't be altered."
    ),
    "tables.NAME.sequence_by": (
        "Columns that order a key's records, instead of their offsets: a record of a lower sequence changes "
        "nothing. Not on compacted topics, and not with `partial_updates`; can't be altered. See "
        "[formats](../formats.md#order-by-a-column)."
    ),
    "tables.NAME.tombstone_retention_hours": (
        "With `sequence_by`: for how long at least a delete is remembered, so that a late upsert loses; 1 to "
        "87,600."
    ),
    "tables.NAME.views": "Which of the views `live`, `live_by_key` and `cold` to publish.",
    "tables.NAME.views_bounded": (
        "End the view `_live` at literal offsets, replaced every two seconds. Always so if a topic has "
        "producers' timestamps, or producers use transactions."
    ),
    "tables.NAME.view_filter": (
        "A condition in Trino's SQL that every row of a view must meet for the querying user: `\"app_id = "
        'current_user"`. Does not apply to lookups and extracts.'
    ),
    "tables.NAME.columns": 'Every column with its type: `app_id = "int"`.',
}

COLUMN_TYPES: Final[Mapping[Kind, str]] = {
    Kind.INT: "an integer token of 32 bits",
    Kind.LONG: "an integer token of 64 bits",
    Kind.STRING: "a string",
    Kind.DOUBLE: "a number in range",
    Kind.DECIMAL: "`decimal(p,s)`: a number, or a string, that fits without rounding, "
    "of at most 1,000 characters and with at most three digits of exponent",
    Kind.BOOLEAN: "`true` or `false`",
    Kind.DATE: 'an RFC 3339 full-date; or, declared as `{ type = "date", epoch = "d" }`, days since 1970',
    Kind.TIMESTAMPTZ: (
        "an RFC 3339 date-time with its zone, at most 6 fraction digits; or, declared as "
        '`{ type = "timestamptz", epoch = "ms" }` (`s`, `ms`, `us`), an integer'
    ),
    Kind.TIMESTAMP: (
        "the same without a zone: a wall clock's time; or, declared as "
        '`{ type = "timestamp", epoch = "us" }` (`s`, `ms`, `us`), an integer'
    ),
    Kind.UUID: "a string of the form 8-4-4-4-12",
    Kind.BINARY: "a string of padded base64",
    Kind.JSON: "anything; the column has its text",
    Kind.STRUCT: (
        "`struct<city: string, zip: string>`: an object; a field that is missing is null, unknown ones are "
        "ignored"
    ),
    Kind.LIST: "`list<string>`: an array; nulls in it are values",
    Kind.MAP: "`map<string, double>`: an object; its keys are strings, and have no order; nulls are values",
}

EXIT_CODES: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "done",
    ExitCode.BAD_ANSWER: "negative answer: no such row, or `verify` or the demo found a difference",
    ExitCode.USAGE: "the command line, the configuration or the request is wrong",
    ExitCode.UNAVAILABLE: "could not answer or check: something is unavailable or not ready",
    ExitCode.COMMIT_UNKNOWN: "a commit may or may not have landed; `ingest reconcile` says which",
    ExitCode.NOTHING_TO_DO: "nothing to do",
    ExitCode.PARTLY_DONE: "partly done: stopped early, or some records were refused",
    ExitCode.NOT_OWNER: "another process owns the table",
    ExitCode.STOPPED: "stopped, since continuing could lose or corrupt data",
    ExitCode.BUG: "a bug in Thermocline",
}

# Said once, above the table of routes.
ANYWHERE: Final = ("internal-error", "method-not-allowed", "route-not-found", "unknown-table")
# The OpenAPI document does not describe itself.
FRAMEWORK_ROUTES: Final[Mapping[str, str]] = {
    "/openapi.json": "The OpenAPI document of this server, with the columns of its tables",
    "/docs": "The same as a page to read and to try (Swagger UI, served from this host)",
}


def main(arguments: Sequence[str]) -> int:
    """Writes the pages, or says which ones are out of date; the exit code."""
    outdated = [name for name, page in PAGES.items() if _on_disk(name) != page()]
    if "--check" in arguments:
        for name in outdated:
            sys.stderr.write(f"docs/reference/{name} is out of date: make docs\n")
        return 1 if outdated else 0
    for name in outdated:
        (REFERENCE / name).write_text(PAGES[name]())
    return 0


def cli_page() -> str:
    """Every command, in the words of its ``--help``."""
    commands = list(_commands(all_commands(), "thermocline"))
    rows = [
        (f"[`{name}`](#{name.replace(' ', '-')})", _first_sentence(command.help or ""))
        for name, command, _ in commands
        if not isinstance(command, TyperGroup)
    ]
    parts = [
        "# Commands",
        NOTE,
        _CLI_INTRODUCTION,
        _table(("command", ""), rows),
    ]
    for name, _, text in commands:
        parts += [f"## {name}", f"```text\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Every setting: type, default, meaning."""
    found = dict(_settings())
    differing = found.keys() ^ SETTINGS.keys()
    assert not differing, f"only in the models or only in SETTINGS: {differing}"
    parts = ["# Settings", NOTE, _SETTINGS_INTRODUCTION]
    for section in dict.fromkeys(name.rpartition(".")[0] for name in found):
        rows = [
            (f"`{name}`", _kind_of(field), _default_of(name, field), _is_defined(name), SETTINGS[name])
            for name, field in found.items()
            if name.rpartition(".")[0] == section
        ]
        headings = ("setting", "type", "default", "in the table", "meaning")
        if not section.startswith("tables"):
            rows_without = [(name, kind, default, meaning) for name, kind, default, _, meaning in rows]
            parts += [f"## [{section}]", _table(("setting", "type", "default", "meaning"), rows_without)]
        else:
            parts += [f"## [{section}]", _TABLES_INTRODUCTION, _table(headings, rows)]
    types = [(f"`{kind}`", text, "yes" if TYPES[kind].key else "no") for kind, text in COLUMN_TYPES.items()]
    parts += ["## Column types", _TYPES_INTRODUCTION, _table(("type", "in JSON", "in a key"), types)]
    return "\n\n".join(parts) + "\n"


def errors_page() -> str:
    """Every error code with its page, and the exit codes."""
    errors = all_errors()
    tree = []
    families = {one.title(): one.__subclasses__() for one in ThermoclineError.__subclasses__()}
    ours = [one for one in ThermoclineError.__subclasses__() if not one.__subclasses__()]
    for title, family in {**families, "Bugs in Thermocline": ours}.items():
        rows = [
            (
                f"[`{error.code}`](#{error.code})",
                int(error.exit_code),
                error.http_status,
                "yes" if error.retryable else "no",
                error.title(),
            )
            for error in family
        ]
        if rows:
            tree += [f"**{title}**", _table(("code", "exit", "HTTP", "retry", "what happened"), rows)]
    exits = [(int(code), EXIT_CODES[code]) for code in ExitCode]
    parts = [
        "# Errors",
        NOTE,
        "`thermocline explain CODE` prints the same pages. *Retry*: whether it can go away by itself.",
        *tree,
        "## Exit codes",
        _table(("exit code", "meaning"), exits),
        "130 means Ctrl-C; 141 means that the reader of the output went away.",
    ]
    for code, error in errors.items():
        parts += [f"## {code}", error.page()]
    return "\n\n".join(parts) + "\n"


def metrics_page() -> str:
    """Every metric of a server and of ingest."""
    rows = []
    for metric in _metrics():
        (described,) = metric.describe()
        name = described.name + ("_total" if described.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # noqa: SLF001  it has no public name
        rows.append((f"`{name}`", described.type, labels, described.documentation))
    parts = [
        "# Metrics",
        NOTE,
        _METRICS_INTRODUCTION,
        _table(("metric", "type", "labels", "meaning"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def http_page() -> str:
    """The page as it is, with its table of routes made from the code."""
    before, _, rest = _on_disk("http.md").partition(ROUTES_BEGIN)
    _, _, after = rest.partition(ROUTES_END)
    rows = [(f"`{method} {path}`", meaning, codes) for method, path, meaning, codes in _routes()]
    table = _table(("route", "answer", "errors"), rows)
    return f"{before}{ROUTES_BEGIN}\n\n{table}\n\n{ROUTES_END}{after}"


def safety_page() -> str:
    """The lines that keep the promises, and the test that fails without each."""
    found = places()
    rows = [
        (line.keeps, f"`{found[name].file}`", f"`{found[name].text}`", f"`{line.test}`", "all" * line.is_full)
        for name, line in LINES.items()
    ]
    return (
        "\n\n".join(
            [
                "# Safety lines",
                NOTE,
                _SAFETY_INTRODUCTION,
                _table(("what it keeps", "where", "line", "test that fails without it", ""), rows),
            ]
        )
        + "\n"
    )


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
    "http.md": http_page,
    "metrics.md": metrics_page,
    "safety.md": safety_page,
}

_CLI_INTRODUCTION: Final = """\
Results go to stdout and talk to stderr. `--json` prints one JSON document instead of text. The options of
`thermocline` itself stand before the command."""

_METRICS_INTRODUCTION: Final = """\
`GET /metrics` in Prometheus's text format: of a server; of `ingest run` with `--metrics-port`, which has
those of ingest, of its table and of views; and of `views publish --watch` with `--metrics-port`, which has
those of views. Counters and histograms are of all API processes of a server; gauges say what is so at that
moment, and those of a table's files what the last commit left. Base units: seconds, bytes, records.
[Watching](../watching.md) says which of them to be woken by."""

_SAFETY_INTRODUCTION: Final = """\
What keeps the table equal to the replay of its log, line by line. `make mutants` takes each of these lines
out of a copy of the repository, one at a time, and runs the test beside it, which must fail then: a test of
`make test`, or where the last column says *all*, of `make test-all` alone."""

_SETTINGS_INTRODUCTION: Final = """\
One file, `thermocline.toml`: the one that `--config` names, else `THERMOCLINE_CONFIG`, else the one in the
current folder. Relative paths are relative to the file. `thermocline config check` lists every problem at
once, and `thermocline config show` what is in force.

A variable takes precedence over the file: `THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS` for
`kafka.bootstrap_servers`, with two underscores for each dot. Unknown names are errors, in the file and in
variables. In the sections of other programs (`kafka.client`, `catalog.properties`, `spark.conf`) a value may
be `${NAME}`, which stands for that variable, and no value is ever shown.

A *size* is a number of bytes, or text such as `"512MB"` (512 * 10^6) or `"8GiB"` (8 * 2^30).

Not settings, but read too: `THERMOCLINE_CACHE` (where jars are kept), and `THERMOCLINE_TRACEBACK=1` (an error
also prints where it came from)."""

_TABLES_INTRODUCTION: Final = """\
`NAME` is what commands and URLs call the table: letters, digits, `_` and `-`. What is marked *in the table*
belongs to the definition: `table create` writes it into the table, and everybody reads it from there. Ingest
refuses a file that says otherwise; `serve` warns."""

_TYPES_INTRODUCTION: Final = """\
A value that is missing or null is null. Any other value that is not of the column's type makes its record
bad. Structs, lists and maps hold values of any type, also of each other, up to 16 levels deep; a time as a
number is spelled `timestamptz epoch ms` in them. See [formats](../formats.md#nested-columns).

A column's name may not begin with `_`. Nor may that of a new column begin with `$`, since Trino's hidden
columns have such names."""


def _commands(
    command: Any, name: str, parent: typer.Context | None = None
) -> Iterator[tuple[str, TyperCommand | TyperGroup, str]]:
    """Every command and group: its path, itself, its help."""
    context = typer.Context(
        command, parent=parent, info_name=name, terminal_width=HELP_COLUMNS, **command.context_settings
    )
    # The list of a group's commands would be cut short, and stands on the page anyway.
    yield context.command_path, command, command.get_help(context).partition("\nCommands:")[0].rstrip()
    for child_name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, child_name, context)


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".") + "."


def _settings() -> Iterator[tuple[str, FieldInfo]]:
    """Every setting by its place in the file; tables are of one kind, under the name NAME."""
    for section, field in Settings.model_fields.items():
        is_table = section == "tables"
        model = TableSettings if is_table else field.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        place = "tables.NAME" if is_table else section
        yield from _settings_in(place, model)


def _settings_in(place: str, model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Those of a section, and of sections within it."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _settings_in(f"{place}.{name}", field.annotation)
        else:
            yield f"{place}.{name}", field


def _kind_of(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(field.annotation))
    if field.annotation is PassThrough:
        return "names and texts"
    if _is_of(field, Bytes):
        return "size"
    if _is_of(field, Names):
        return "list of names"
    if _is_of(field, OnErrorText):
        return "text, or one a stage"
    words: Mapping[Any, str] = {
        str: "text",
        int: "integer",
        float: "number",
        bool: "yes or no",
        Path: "path",
        SecretStr: "text",
    }
    return words.get(_where_given(field.annotation), "names and types")


def _where_given(annotation: Any) -> Any:
    """``int`` of ``int | None``, also where it is annotated."""
    parts = get_args(annotation)
    if NoneType not in parts:
        return annotation
    part = next(part for part in parts if part is not NoneType)
    return get_args(part)[0] if get_origin(part) is Annotated else part


def _is_of(field: FieldInfo, annotated: Any) -> bool:
    """Whether the field is declared with an ``Annotated`` type of the settings."""
    return annotated.__metadata__[0] in field.metadata


def _default_of(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "*needed*"
    if name == "tables.NAME.entity":
        return "the whole key"
    if field.default in ("", {}, (), None):
        return ""
    if _is_of(field, Bytes):
        return f"`{_size(field.default)}`"
    if isinstance(field.default, tuple):
        return f"`{json.dumps(field.default)}`"
    text = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    return f"`{text.removesuffix('.0')}`"


def _size(count: int) -> str:
    units = ("", "k", "M", "G", "T")
    step = max(i for i in range(len(units)) if count % 1000**i == 0)
    return f"{count // 1000**step}{units[step]}B"


def _is_defined(name: str) -> str:
    field = name.rpartition(".")[2].removesuffix("_file")
    return "yes" if field in LiveTable.__dataclass_fields__ else ""


def _metrics() -> list[MetricWrapperBase]:
    found = [
        value
        for module in (metrics, measures, ingest_measures, maintenance_measures)
        for value in vars(module).values()
    ]
    return [metric for metric in found if isinstance(metric, MetricWrapperBase)]


def _routes() -> Iterator[tuple[str, str, str, str]]:
    """Method, path, meaning and error codes of every endpoint."""
    sample = LiveTable.build(
        name="{table}", identifier="app.sample", topics=["sample"], key=["id"], columns={"id": "int"}
    )
    for path, operations in described(create_app(Tables([]), ServingSettings()).api, {"{table}": sample})[
        "paths"
    ].items():
        for method, operation in operations.items():
            listed = [
                code
                for answer in operation["responses"].values()
                for code in answer["description"].split(", ")
            ]
            codes = ", ".join(f"`{code}`" for code in listed if code in all_errors() and code not in ANYWHERE)
            yield method.upper(), path, operation["summary"].replace("{table}", "a table"), codes
    for path, meaning in FRAMEWORK_ROUTES.items():
        yield "GET", path, meaning, ""


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)


def _on_disk(name: str) -> str:
    path = REFERENCE / name
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
