"""Writes ``docs/reference`` from the code: `python docs/generate.py`; with ``--check``, compares only.

Commands speak for themselves by their ``--help``, errors by their pages, metrics by their help texts, routes
by the OpenAPI document. What settings mean is said here, in `SETTINGS`, but for the options of a table's
definition, which say it themselves; a setting without a meaning is an error, and so is a meaning without its
setting.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from prometheus_client.metrics import MetricWrapperBase
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from tests.mutation import places
from tests.safety_lines import LINES
from thermocline.cli.entry import all_commands
from thermocline.errors import ExitCode, ThermoclineError, all_errors
from thermocline.ingest.owner import measures as ingest_measures
from thermocline.maintenance import measures as maintenance_measures
from thermocline.process import metrics
from thermocline.rules.column_types import TYPES, Kind, for_every
from thermocline.rules.definition import LiveTable
from thermocline.rules.definition.option import option_of, settings_of
from thermocline.serving.http.app import create_app
from thermocline.serving.http.openapi import described
from thermocline.serving.read.tables import Tables
from thermocline.serving.store import measures
from thermocline.settings import PassThrough, ServingSettings, Settings, TableSettings
from thermocline.settings.route import RouteSettings
from thermocline.settings.values import (
    Bytes,
    ContractText,
    Names,
    OnErrorText,
    UnlessText,
    WhereText,
)

REFERENCE: Final = Path(__file__).parent / "reference"
NOTE: Final = "<!-- Written by docs/generate.py; `make docs` writes it again. -->"
ROUTES_BEGIN: Final = "<!-- routes: written by docs/generate.py -->"
ROUTES_END: Final = "<!-- end of routes -->"
HELP_COLUMNS: Final = 100

SETTINGS: Final[Mapping[str, str]] = {
    "kafka.bootstrap_servers": "Kafka brokers, as `host:port`, separated by commas.",
    "kafka.client": (
        "Any librdkafka settings, under their own names (SASL, TLS, ...). Put names with dots in quotes."
    ),
    "registry.url": (
        "URL of a Confluent-compatible schema registry, for records that name their schemas. Empty: none."
    ),
    "registry.user": "User for HTTP basic authentication. Empty: none.",
    "registry.password": "Password, sent over https only. Best set as `THERMOCLINE_REGISTRY__PASSWORD`.",
    "registry.ca_file": "File with CA certificates to trust instead of the system's.",
    "registry.timeout_seconds": (
        "Timeout of a request. When it expires, reading waits and the request is repeated."
    ),
    "catalog.name": "Name of the catalog in Spark and PyIceberg.",
    "catalog.type": "Kind of catalog. `sql` is a database supported by SQLAlchemy.",
    "catalog.uri": "Address of the catalog. Required for `sql`, `rest` and `hive`.",
    "catalog.warehouse": "Location of the tables: a folder or a URI. Required for `sql`.",
    "catalog.properties": "Further settings of the catalog and of file access, under PyIceberg's names.",
    "spark.master": "Spark master URL.",
    "spark.conf": "Any Spark settings, under their own names. They override Thermocline's own.",
    "ingest.engine": (
        "Where a batch's tasks run. `spark`: on Spark. `local`: one after the other in the process of "
        "`ingest run`, without Spark; for small tables."
    ),
    "ingest.nice": (
        "Niceness (0 to 19) of `ingest run` and all that it starts, Spark's workers included, so that a "
        "server on the same machine answers sooner. 0 leaves it as it is. In a container or a systemd "
        "service, set the CPU weight there instead."
    ),
    "ingest.lease_seconds": (
        "How long an owner may be silent before another process may take its table. The owner renews its "
        "lease three times in this period."
    ),
    "ingest.mirror_group": (
        "Consumer group to which each committed seam is written, for tools that show the lag of groups. "
        "`{table}` in it is replaced by the table's name, and must be in it where there are several tables. "
        "Nothing reads it back. Empty: none. See "
        "[lag for other tools](../operate-ingest.md#lag-for-other-tools)."
    ),
    "lineage.url": (
        "The whole address to which ingest and maintenance post lineage events, such as "
        "`http://marquez:5000/api/v1/lineage`. Empty: none are sent. See [lineage](../lineage.md)."
    ),
    "lineage.key": (
        "Key that is sent as a bearer token, over https only. Best set as `THERMOCLINE_LINEAGE__KEY`."
    ),
    "lineage.ca_file": "File with CA certificates to trust instead of the system's.",
    "lineage.namespace": "Namespace of the jobs in the events.",
    "lineage.timeout_seconds": "How long each step of a request may take: connecting, sending, the answer.",
    "maintenance.enabled": "Whether `ingest run` maintains its table between batches.",
    "maintenance.target_file_bytes": "Target size of the files that a rewrite writes.",
    "maintenance.snapshots_seconds": (
        "How long snapshots are kept, for reads by snapshot id or read point. At most 500 are kept. "
        "Snapshots that a lease, tag or branch names are kept longer."
    ),
    "maintenance.files_seconds": (
        "How much longer the files of expired snapshots are kept, for readers that still use them without a "
        "lease. Must be longer than the longest query or copy takes."
    ),
    "maintenance.scans_per_hour": (
        "How many full scans of the table other engines make per hour; used to decide which rewrites are "
        "worthwhile. Servers count extracts themselves."
    ),
    "maintenance.lookups_per_second": (
        "Lookups per second; used to decide which rewrites are worthwhile, if no server counts lookups."
    ),
    "serving.host": "Address to listen on.",
    "serving.port": "Port to listen on.",
    "serving.workers": "Number of API processes, which share the port.",
    "serving.connections_max": (
        "Maximum number of connections that each API process has open, and at most half as many as it may "
        "have files open. For another one, the connection is closed that has asked for nothing for longest. "
        "If all are being answered, the new one gets `too-many-connections`."
    ),
    "serving.connections_per_address_max": (
        "Maximum number of these connections that one address has, or one IPv6 network (/64); without it, "
        "half of them. For another one, the connection of that address is closed that has asked for nothing "
        "for longest. If all are being answered, the new one gets `too-many-requests`. A proxy in "
        "`serving.forwarded_from` has no such bound, since all who ask through it come from its address."
    ),
    "serving.request_seconds_max": (
        "Maximum time from a connection, or the first byte of a request, until the whole request has come. "
        "After it, the connection is closed."
    ),
    "serving.tailers": (
        "Maximum number of tailer processes. If there are more tables, a process tails several."
    ),
    "serving.state_dir": (
        "Folder for the hot tier and the cold index, on a local disk. Only the user that runs the server can "
        "enter it; one of another user is refused, and tables can't be in it."
    ),
    "serving.hot_bytes_max": (
        "Maximum size of a table's hot tier on disk. When it is reached, the tailer pauses, and a command "
        "that works without a server stops."
    ),
    "serving.rows_bytes_max": (
        "Maximum size on disk of the rows ready to send that the API processes share, per table. When it is "
        "reached, the oldest quarter is deleted."
    ),
    "serving.rows_ahead": (
        "Whether a process makes the rows of whole tables ready to send before anybody asks for them, if "
        "they fit into `serving.rows_bytes_max`."
    ),
    "serving.read_after_seconds_max": "Maximum time that a request with `Thermocline-Read-After` waits.",
    "serving.clients_file": (
        "The file that says who may ask, and for what: see [security](../security.md). Without it, everybody "
        "who can reach the port may read every table, and `serving.host` must be a loopback address."
    ),
    "serving.tls_certificate": (
        "PEM file with the server's certificate, and those between it and a CA. With it, the server speaks "
        "TLS (1.2 or newer) and nothing else. It is read again when it changes, also by way of a link; if "
        "it then can't be used, the one before stays in use, and the log says so."
    ),
    "serving.tls_key": (
        "PEM file with the key of `serving.tls_certificate`, without a password. It is read again as well. "
        "With an EC key, a handshake costs about half of one with RSA."
    ),
    "serving.tls_client_ca": (
        "PEM file with the CAs that issue certificates to clients. A client need not have one; if it shows "
        "one, it must be valid and from one of these. Empty: clients are not asked for one."
    ),
    "serving.forwarded_from": (
        "Addresses and networks (`10.0.0.0/8`) of proxies that say for whom they ask, in `X-Forwarded-For`. "
        "From the right, the first address there that is not one of these is the caller's. From others the "
        "header is ignored, and so is `X-Forwarded-Proto`, which says how a page writes its own address."
    ),
    "serving.hosts": (
        "Names by which callers may call the server in the Host header, such as `lake.example.com` or "
        "`*.example.com`; its port is ignored. A request with another one is refused. `localhost`, the "
        "addresses of loopback and `serving.host` are always allowed; probes that ask another address have "
        "to send a Host header. Empty: all."
    ),
    "serving.limits.requests_per_second": (
        "Requests per second of each client that has no limits of its own in the clients file, and of each "
        "address that brings no credentials. Not set: no limit."
    ),
    "serving.limits.burst": "Requests at once after a quiet time. Default: as many as a second's.",
    "serving.limits.extracts": "Extracts at once, also those that wait for their turn. Not set: no limit.",
    "serving.limits.bytes_per_minute": (
        "Bytes of answers per minute. Whoever took more waits until they are made up for. Not set: no limit."
    ),
    "serving.cors_origins": (
        "Origins (`https://app.example.com`) whose web pages may read answers in a browser; `*` stands for "
        "all. Empty: none."
    ),
    "serving.stale_after_seconds": (
        "Age from which answers are marked as stale. From this age on, live views that read hot rows from "
        "the server are refused."
    ),
    "serving.catalog.enabled": (
        "Whether the server is also an Iceberg REST catalog, below `/iceberg`, whose tables are as of now. "
        "It writes files below `thermocline/live` in each table's location."
    ),
    "serving.catalog.min_interval_seconds": (
        "How old the snapshot may be that an engine gets: queries of that time share one. A longer interval "
        "writes fewer files."
    ),
    "serving.catalog.files_per_hour_max": (
        "How many files may be written in an hour for a table. Where snapshots would take more, each is "
        "given for longer than `serving.catalog.min_interval_seconds`. Without it there is no bound."
    ),
    "serving.catalog.load_seconds_max": (
        "How long an engine waits for a snapshot before it is refused, as when the table's store doesn't "
        "answer. The server goes on with the snapshot."
    ),
    "serving.catalog.reader_properties": (
        "Properties of the table's own catalog, such as `credential`, that replace those of `[catalog]` "
        "when the server asks what a reader may access. The keys and settings of the store that the "
        "catalog then gives are passed on to engines. Without it nothing is passed on. If it is empty, the "
        "server asks as itself, and engines get keys that may write."
    ),
    "serving.catalog.files_seconds": (
        "How long the files of a snapshot stay after it was last given to an engine: longer than any query "
        "takes."
    ),
    "serving.extracts_max": (
        "Maximum number of extracts that the server streams at once, over all its workers. Each takes up to "
        "256 MB of memory and two threads."
    ),
    "serving.extracts_waiting_max": (
        "Maximum number of extracts that wait for their turn, and of extract jobs that wait for theirs. Any "
        "more are refused with `server-busy`."
    ),
    "serving.extract_jobs_dir": (
        "Folder for the files of extract jobs, closed to other users as `state_dir` is. Default: none; the "
        "server then takes no jobs."
    ),
    "serving.extract_jobs_store": (
        "URI in an object store, such as `s3://lake/extracts`, below which new jobs put their files. The "
        "server uses the keys in `catalog.properties`. `extract_jobs_dir` then has only the records of the "
        "jobs. Default: none; the files are in `extract_jobs_dir`."
    ),
    "serving.extract_jobs_retention_hours": "How long a job and its files are kept after it is over.",
    "audit.sink": (
        "Where the server writes its [audit log](../audit.md), one line for each request that reads or "
        "changes data: to files (`file`), to its standard output (`stdout`) or to a Kafka topic (`kafka`). "
        "`off`: nowhere."
    ),
    "audit.required": (
        "Whether the server stops answering, with `audit-unavailable`, while the sink takes no records. "
        "Otherwise it goes on, and counts the records that are lost."
    ),
    "audit.hash_key_file": (
        "File with the secret key of the hashes by which the log names entities: at least 32 bytes. If it "
        "does not exist, it is created with 32 random ones. Servers that are to write the same hashes need "
        "the same key."
    ),
    "audit.path": "Folder of the log's files, for `file`. Created for this user alone (0700).",
    "audit.rotate_bytes": "Size at which a file is set aside and another one begun, for `file`.",
    "audit.keep_files": "How many files that were set aside are kept, for `file`. Older ones are deleted.",
    "audit.topic": "An existing topic of `[kafka]`, for `kafka`. Records are keyed by the client's name.",
    "sql.memory_bytes_max": (
        "Memory that a statement of `thermocline sql` may use, in addition to about 300 MB for each table "
        "that it scans. If a statement needs more, DuckDB spills to `sql.temp_dir`."
    ),
    "sql.temp_dir": "Folder to which statements spill. Default: the system's folder for temporary files.",
    "views.enabled": "Whether `ingest run` publishes the tables' views in Trino after each commit.",
    "views.url": (
        "URL of Trino: `https://host:port`. The default port is also that of `serving.port`. If both run on "
        "one machine, change one of them."
    ),
    "views.user": "Trino user that publishes the views. They run with this user's privileges.",
    "views.password": "Password, sent over https only. Best set as `THERMOCLINE_VIEWS__PASSWORD`.",
    "views.lake": "Name of the tables' catalog in Trino.",
    "views.kafka": "Name of the Kafka catalog in Trino.",
    "views.hot": (
        "Where live views read the records that the table does not contain yet: from Kafka (`kafka`), or "
        "from the live tables of `thermocline serve` (`server`), which needs `serving.catalog.enabled` or "
        "`views.live_uri`."
    ),
    "views.live": "What Trino calls the catalog of the server's live tables.",
    "views.live_uri": (
        "Where Trino reaches the live catalog, such as `https://server.example/iceberg`. By default it is at "
        "`serving.host` and `serving.port`."
    ),
    "views.live_key": (
        "API key with the verb `catalog` by which Trino asks for live tables. `views config` names a "
        "variable for it. Needed if the server has a clients file."
    ),
    "views.margin_seconds": (
        "Minimum age of records in the view `_live`, so that both of its scans of the log see the same "
        "records. Must be longer than the clock difference between Trino and the brokers, and than the "
        "replication delay."
    ),
    **{f"tables.NAME.{name}": option_of(field).meaning for name, field in settings_of(LiveTable)},
    "tables.NAME.start": (
        "Where a new table, or an added topic, starts reading: `earliest`, `latest` or an ISO 8601 time with "
        "time zone. Used once, by `table create` or `table alter`."
    ),
    "tables.NAME.commit_interval_seconds": "Time between the starts of two batches, unless ingest is behind.",
    "tables.NAME.batch_records_max": "Maximum number of offsets in a batch.",
    "tables.NAME.batch_bytes_max": "Maximum size of a batch's values, estimated from the previous batch.",
    "tables.NAME.errors_ratio_max": (
        "Maximum share of bad records among those of a batch that are the table's; above it, ingest stops. "
        "Applies from 100 bad records on. Records that the table's `contract` refuses are not counted."
    ),
    "tables.NAME.errors_count_max": (
        "Maximum number of bad records in a batch; above it, ingest stops. Empty: no limit. Records that the "
        "table's `contract` refuses are not counted."
    ),
    "tables.NAME.deleted_topic_seconds": (
        "A topic that a pattern found, and that was deleted while ingest was not running, leaves the table "
        "if the table held all of the log at most this long before. Otherwise, ingest stops (topic-deleted)."
    ),
    "tables.NAME.dead_letter_topic": (
        "An existing Kafka topic to which bad records are also written, with their key, value, headers "
        "and origin."
    ),
    "tables.NAME.views": "Which of the views `live`, `live_by_key` and `cold` to publish.",
    "tables.NAME.views_bounded": (
        "End the view `_live` at literal offsets, which are replaced every two seconds. This is always done "
        "if a topic has producers' timestamps, or if producers use transactions."
    ),
    "tables.NAME.view_filter": (
        "A condition in Trino's SQL, such as "
        '`"app_id = current_user"`. In the views, a user sees only the rows that meet it. Does not apply to '
        "lookups and extracts."
    ),
    "routes.NAME.topics": "Topics of the route, as in `[tables.NAME]`. All of its tables read them.",
    "routes.NAME.by": (
        'Where a record has its value, as `where` says it: `{ field = "type" }`, or `event`, `header`, '
        "`topic` or `schema`."
    ),
    "routes.NAME.table": (
        "Identifier of the tables, such as `app.events_{}`. `{}` is replaced by a name that is made of the "
        "value. Commands and servers call the tables `NAME_` followed by that name."
    ),
    "routes.NAME.directory": (
        "Identifier of the route's directory, which commands call NAME. Default: `table`, with `directory` "
        "for `{}`."
    ),
    "routes.NAME.denied": (
        "Values that get no table, as patterns such as `debug_*`, matched with the value and with the name "
        "that is made of it. A table that exists is left alone while its value is denied."
    ),
    "routes.NAME.tables_max": (
        "Maximum number of tables of the route; records of further values are unrouted."
    ),
    "routes.NAME.unrouted": (
        "What the directory does with records that have no value, or one beyond `tables_max`: keep them in "
        "its quarantine, skip them, or stop. In any case, it counts them. Denied ones are only counted."
    ),
}

_DESCRIBED: Final = {
    Kind.INT: "an integer token of 32 bits",
    Kind.LONG: "an integer token of 64 bits",
    Kind.STRING: "a string",
    Kind.DOUBLE: "a number in range",
    Kind.DECIMAL: "`decimal(p,s)`: a number, or a string, that fits without rounding, "
    "of at most 1,000 characters and with at most three digits of exponent",
    Kind.BOOLEAN: "`true` or `false`",
    Kind.DATE: 'an RFC 3339 full-date; or, if declared as `{ type = "date", epoch = "d" }`, days since 1970',
    Kind.TIME: (
        "a time of day without a zone, as HH:MM:SS with at most 6 fraction digits; or, if declared as "
        '`{ type = "time", epoch = "ms" }` (`s`, `ms`, `us`), an integer: the units since midnight'
    ),
    Kind.TIMESTAMPTZ: (
        "an RFC 3339 date-time with its zone, at most 6 fraction digits; or, if declared as "
        '`{ type = "timestamptz", epoch = "ms" }` (`s`, `ms`, `us`), an integer'
    ),
    Kind.TIMESTAMP: (
        "the same without a zone: a wall clock's time; or, if declared as "
        '`{ type = "timestamp", epoch = "us" }` (`s`, `ms`, `us`), an integer'
    ),
    Kind.UUID: "a string of the form 8-4-4-4-12",
    Kind.BINARY: "a string of padded base64",
    Kind.JSON: "any value; the column holds its text",
    Kind.STRUCT: (
        "`struct<city: string, zip: string>`: an object; missing fields are null, unknown fields are ignored"
    ),
    Kind.LIST: "`list<string>`: an array; nulls in it are values",
    Kind.MAP: "`map<string, double>`: an object; its keys are strings and have no order; nulls are values",
}
COLUMN_TYPES: Final = for_every(Kind, _DESCRIBED)

EXIT_CODES: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "done",
    ExitCode.BAD_ANSWER: "negative answer: no such row, or `verify`, `table diff` or the demo found a "
    "difference",
    ExitCode.USAGE: "the command line, the configuration or the request is wrong",
    ExitCode.UNAVAILABLE: "the command could not answer or check: something is unavailable or not ready",
    ExitCode.COMMIT_UNKNOWN: "a commit may or may not have landed; `ingest reconcile` says which",
    ExitCode.NOTHING_TO_DO: "nothing to do",
    ExitCode.PARTLY_DONE: "partly done: stopped early, or some records were refused",
    ExitCode.NOT_OWNER: "another process owns the table",
    ExitCode.STOPPED: "stopped, because continuing could lose or corrupt data",
    ExitCode.BUG: "a bug in Thermocline",
}

# Said once, above the table of routes.
ANYWHERE: Final = (
    "audit-unavailable",
    "bad-request",
    "internal-error",
    "not-permitted",
    "too-many-requests",
    "unauthenticated",
    "unknown-table",
)
# The OpenAPI document does not describe itself.
FRAMEWORK_ROUTES: Final[Mapping[str, str]] = {
    "/openapi.json": "The OpenAPI document of this server, with the columns of its tables",
    "/docs": "The same document as a page to read and try out (Swagger UI, served from this host)",
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
            introduction = [_ROUTES_INTRODUCTION] if section.startswith("routes") else []
            listed = _table(("setting", "type", "default", "meaning"), rows_without)
            parts += [f"## [{section}]", *introduction, listed]
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
        "`thermocline explain CODE` prints the same pages. *Retry*: whether the error can go away by itself.",
        *tree,
        "## Exit codes",
        _table(("exit code", "meaning"), exits),
        "130 means Ctrl-C. 141 means that the program that read the output ended early, as `head` does.",
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
    collected = (metrics.SEAM_OFFSET, metrics.END_OFFSET, metrics.USAGE)
    for family in chain.from_iterable(one.describe() for one in collected):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in family._labelnames)  # type: ignore[attr-defined]  # noqa: SLF001
        rows.append((f"`{name}`", family.type, labels, family.documentation))
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
Commands print results to stdout and messages to stderr. With `--json`, they print one JSON document instead
of text. Put the options of `thermocline` itself before the command."""

_METRICS_INTRODUCTION: Final = """\
`GET /metrics` returns metrics in Prometheus's text format. A server provides it. So do `ingest run` with
`--metrics-port` (the metrics of ingest, of its table and of views) and `views publish --watch` with
`--metrics-port` (the metrics of views).

On a server, counters and histograms cover all API processes. Gauges show the state at the moment of the
request; those of a table's files show what the last commit left. `process_*` covers all processes of the
server, or the one of ingest, without Spark's JVM and workers. Base units are seconds, bytes and records.
[Watching](../watching.md) says which metrics should wake you."""

_SAFETY_INTRODUCTION: Final = """\
These lines keep the table equal to the replay of its log. `make mutants` takes each of them out of a copy of
the repository, one at a time, and runs the test beside it, which must then fail. The test belongs to
`make test`, or, if the last column says *all*, only to `make test-all`."""

_SETTINGS_INTRODUCTION: Final = """\
All settings are in one file, `thermocline.toml`: the one that `--config` names, otherwise the one that
`THERMOCLINE_CONFIG` names, otherwise the one in the current folder. Relative paths are relative to the file.
`thermocline config check` lists every problem at once, and `thermocline config show` prints the values in
effect.

An environment variable takes precedence over the file: `THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS` sets
`kafka.bootstrap_servers`, with two underscores for each dot. Unknown names are errors, both in the file and
in variables. In the text of a setting, `${NAME}` stands for the variable of that name, except in
`[tables.NAME]`. Values in the sections for other programs (`kafka.client`, `catalog.properties`,
`spark.conf`, `serving.catalog.reader_properties`) are never shown.

A variable with `_FILE` at its end names a file that has the value, as containers mount secrets:
`THERMOCLINE_REGISTRY__PASSWORD_FILE=/run/secrets/registry`. This works for every setting but the columns of a
table. The value is the file's content as it is, also a `${NAME}` in it, without one line break at the end;
it is UTF-8 text of at most 1,048,576 bytes. The variable without `_FILE` must not be set, too. Dots in the
names of other programs are two underscores, or dots: `THERMOCLINE_KAFKA__CLIENT__SASL__PASSWORD_FILE`. A
setting whose own name ends in `_file` is set by the variable of that name.

A *size* is a number of bytes, or text such as `"512MB"` (512 * 10^6) or `"8GiB"` (8 * 2^30).

Thermocline also reads variables that are not settings: `THERMOCLINE_CACHE` says where jars are kept, and with
`THERMOCLINE_TRACEBACK=1`, an error also prints where it came from.

Commands that ask a server (`--url`, `jobs`, `status`) read these, and no command line shows a key:

| variable | meaning |
| --- | --- |
| `THERMOCLINE_KEY` | API key or token, sent as `Authorization: Bearer ...` |
| `THERMOCLINE_KEY_FILE` | File with the key, instead |
| `THERMOCLINE_KEY_OVER_HTTP` | With `1`, the key is also sent unencrypted to other machines; else it is not |
| `THERMOCLINE_CA_FILE` | PEM file with the CAs to trust instead of the usual ones |
| `THERMOCLINE_CERTIFICATE` | PEM file with your own certificate, if the server knows you by it |
| `THERMOCLINE_CERTIFICATE_KEY` | PEM file with its key; default: the same file |

A server's certificate is always verified. If a command asks the server of its own configuration, that is by
the file `serving.tls_certificate`, so that the certificate need not name the address."""

_TABLES_INTRODUCTION: Final = """\
`NAME` is the table's name in commands and URLs. It consists of letters, digits, `_` and `-`. Settings that
are marked *in the table* belong to the definition: `table create` writes them into the table, and everything
reads them from there. If the file disagrees with the table, ingest refuses to run, and `serve` warns."""

_ROUTES_INTRODUCTION: Final = """\
A [route](../formats/routes.md#a-table-for-each-value) makes a table for each value that its records have. All
settings of `[tables.NAME]` but `identifier`, `topics`, `where` and `unless` can stand here, too, and are
those of each of its tables. With `columns = "schema"`, each table has the [columns of its own records'
schema](../formats/routes.md#a-table-for-each-type-with-its-columns), and `key` may be left out."""

_TYPES_INTRODUCTION: Final = """\
If a value is missing or null, the column is null. Any other value that does not have the column's type makes
its record bad. Structs, lists and maps hold values of any type, including each other, up to 16 levels deep.
In them, the type of a time as a number is spelled `timestamptz epoch ms`. See
[formats](../formats/nested.md#nested-columns).

A column's name may not begin with `_`. The name of a new column may not begin with `$` either, because
Trino's hidden columns have such names."""


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
        model = {"tables": TableSettings, "routes": RouteSettings}.get(section, field.annotation)
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        place = f"{section}.NAME" if section in ("tables", "routes") else section
        of_tables = TableSettings.model_fields.keys() - {"topics"} if section == "routes" else ()
        yield from (one for one in _settings_in(place, model) if one[0].rpartition(".")[2] not in of_tables)


def _settings_in(place: str, model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Those of a section, and of sections within it."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _settings_in(f"{place}.{name}", field.annotation)
        else:
            yield f"{place}.{name}", field


_KINDS: Final[Sequence[tuple[Any, str]]] = (
    (Bytes, "size"),
    (Names, "list of names"),
    (WhereText, "a condition, or several"),
    (OnErrorText, "text, or one a stage"),
    (ContractText, "text, or one a kind"),
)


def _kind_of(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(field.annotation))
    if field.annotation is PassThrough:
        return "names and texts"
    if field.annotation == UnlessText:
        return "list of names"
    for annotated, kind in _KINDS:
        if _is_of(field, annotated):
            return kind
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
    return "yes" if name.rpartition(".")[2] in dict(settings_of(LiveTable)) else ""


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
