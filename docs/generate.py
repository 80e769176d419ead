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
from thermocline.cli.entry import app
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
    "kafka.bootstrap_servers": "Where the brokers are: `host:port`, several with commas.",
    "kafka.client": "Any librdkafka setting by its own name: SASL, TLS and so on. Quote names with dots.",
    "registry.url": (
        "Where a Confluent-compatible schema registry is, for records that name their schemas; empty: "
        "there is none."
    ),
    "registry.user": "The user of HTTP's basic authentication; empty: none is sent.",
    "registry.password": "Its password, sent over https only; best set as `THERMOCLINE_REGISTRY__PASSWORD`.",
    "registry.ca_file": "A file of the certificates to trust, instead of the system's.",
    "registry.timeout_seconds": "How long an answer may take; then reading waits, and it is asked again.",
    "catalog.name": "What Spark and PyIceberg call the catalog.",
    "catalog.type": "The kind of catalog. `sql` is a database that SQLAlchemy knows.",
    "catalog.uri": "Where the catalog is. Needed for `sql`, `rest` and `hive`.",
    "catalog.warehouse": "Where tables are kept: a folder or a URI. Needed for `sql`.",
    "catalog.properties": "More settings of the catalog and of its file access, in PyIceberg's names.",
    "spark.master": "Where Spark runs.",
    "spark.conf": "Any Spark setting by its own name; it has the last word over Thermocline's own.",
    "ingest.engine": (
        "What runs the tasks of a batch: `spark`, or `local`, which runs them in the process of `ingest "
        "run`, one after the other, without Spark: for small tables."
    ),
    "ingest.lease_seconds": (
        "How long an owner may be silent before another takes its table. Renewed three times as often."
    ),
    "maintenance.enabled": "Whether `ingest run` maintains its table between batches.",
    "maintenance.target_file_bytes": "The size of the files that a rewrite writes.",
    "maintenance.snapshots_seconds": (
        "For how long a snapshot can be asked for, by its id or a read point; then it leaves the metadata, "
        "unless a view's lease, a tag or a branch names it. At most 500 are kept."
    ),
    "maintenance.files_seconds": (
        "For how much longer an expired snapshot's files stay, for those who read it: longer than any query, "
        "extract or lookup takes."
    ),
    "maintenance.scans_per_hour": (
        "How often engines read the table whole: what rewrites are weighed by. Servers count extracts."
    ),
    "maintenance.lookups_per_second": (
        "How often keys are looked up, where no server counts that: what rewrites are weighed by."
    ),
    "serving.host": "The address to listen on.",
    "serving.port": "The port to listen on.",
    "serving.workers": "API processes that share the port.",
    "serving.state_dir": "Where the hot tier and the cold index are kept; on a local disk.",
    "serving.hot_bytes_max": (
        "What one table's hot tier may take on disk. At it, the tailer pauses; a command without a server "
        "stops."
    ),
    "serving.read_after_seconds_max": "How long a request with `Thermocline-Read-After` waits.",
    "serving.expose_without_authentication": (
        "Serve other machines, too. Without it `serving.host` must be a loopback address: there is no "
        "authentication yet, so whoever reaches the port reads every table."
    ),
    "serving.stale_after_seconds": "The age from which an answer is marked stale.",
    "views.enabled": "Whether `ingest run` publishes the tables' views in Trino after each commit.",
    "views.url": "Where Trino is: `https://host:port`.",
    "views.user": "Whom to publish as. The views run with this user's rights.",
    "views.password": "Its password, sent over https only; best set as `THERMOCLINE_VIEWS__PASSWORD`.",
    "views.lake": "What Trino calls the catalog of the tables.",
    "views.kafka": "What Trino calls the Kafka catalog.",
    "views.margin_seconds": (
        "How old a record must be to be in the view `_live`, so that both its scans of the log see the same; "
        "more than the clocks of Trino and of the brokers differ by, and than a record takes to its replicas."
    ),
    "tables.NAME.identifier": "`namespace.table` in the catalog.",
    "tables.NAME.topics": "The topics that feed the table.",
    "tables.NAME.start": (
        "Where a new table begins: `earliest`, `latest` or an ISO 8601 time with its zone. Read once, by "
        "`table create`."
    ),
    "tables.NAME.format": (
        "What values are written in: `json`; or, where a value is one column, Kafka's `string`, `int`, "
        "`long`, `uuid` or `bytes`; or, by the schemas of their writers, `avro`, `protobuf` or "
        "`json_schema`. See [formats](../formats.md)."
    ),
    "tables.NAME.envelope": (
        "What a record says: `plain`, a row or its end; `debezium` or `maxwell`, a change event."
    ),
    "tables.NAME.delete_when": (
        "Which records delete their row, beside those without a value: "
        '`{ path = "op", values = ["D"] }`, or `header` instead of `path`.'
    ),
    "tables.NAME.key_format": "The same for keys, where they are not written as values are.",
    "tables.NAME.key": (
        "The columns that identify a row. `[]` makes a table to which every record adds a row; it needs "
        '`key_from = "value"`, and has extracts but no lookups.'
    ),
    "tables.NAME.key_from": "Where key columns are: the record's `key` or `value`. Tombstones need `key`.",
    "tables.NAME.entity": "The leading key columns that a lookup must give.",
    "tables.NAME.buckets": "Partitions of the table, by a hash of the entity's last column; 1 to 4,096.",
    "tables.NAME.format_version": (
        "Of the Iceberg table: 3 has deletion vectors, 2 is for engines that can't read those."
    ),
    "tables.NAME.commit_interval_seconds": "From one batch's start to the next's, unless ingest is behind.",
    "tables.NAME.batch_records_max": "The most offsets that a batch spans.",
    "tables.NAME.batch_bytes_max": "The most bytes of values in a batch, by the mean of the batch before.",
    "tables.NAME.on_error": (
        "What becomes of a bad record: `quarantine` keeps it in the companion table, `skip` only counts it, "
        '`fail` stops ingest on it. A word for all, or one a stage: `{ key = "fail", contract = "skip" }`; '
        "a stage that is left out has `quarantine`."
    ),
    "tables.NAME.errors_ratio_max": (
        "A batch ends ingest when a greater part of its records is bad; it counts once 100 of them are."
    ),
    "tables.NAME.errors_count_max": (
        "A batch ends ingest when more of its records are bad. Empty: no such bound."
    ),
    "tables.NAME.dead_letter_topic": (
        "An existing Kafka topic that bad records are also written to: their key, value and headers, and "
        "where they come from."
    ),
    "tables.NAME.transactional": (
        "Says that producers write in transactions. With or without it, records count only once their "
        "transaction is committed."
    ),
    "tables.NAME.suppress_unchanged": (
        "Writes nothing for a record whose row is in the table with the same values already; the row keeps "
        "its older provenance."
    ),
    "tables.NAME.value_schema_file": (
        "A file with the schema of all values, where they do not name their own: Avro's in JSON; a `.proto` "
        "or a compiled one. It becomes part of the table's definition, and can't be altered."
    ),
    "tables.NAME.key_schema_file": "The same for keys.",
    "tables.NAME.value_message": (
        "Which message of such a file of Protobuf all values are, by its full name; empty: the only one."
    ),
    "tables.NAME.key_message": "The same for keys.",
    "tables.NAME.schema_framed": (
        "With such a file: records name a schema nevertheless, before their bodies or in headers, and that "
        "is left aside."
    ),
    "tables.NAME.views": "Which of the views `live`, `live_by_key` and `cold` to publish.",
    "tables.NAME.views_bounded": (
        "Ends the view `_live` at literal offsets, replaced every two seconds; so it is by itself where a "
        "topic has producers' times, or producers use transactions."
    ),
    "tables.NAME.view_filter": (
        "A condition in Trino's SQL that each row of every view must meet for the user who asks: "
        '`"app_id = current_user"`. Not for lookups and extracts.'
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
    Kind.UUID: "a string of the form 8-4-4-4-12",
    Kind.BINARY: "a string of padded base64",
    Kind.JSON: "anything; the column has its text",
}

EXIT_CODES: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "done",
    ExitCode.BAD_ANSWER: "answered, and the answer is bad: no such row, or the demo disagrees",
    ExitCode.USAGE: "the command line, the configuration or the request is wrong",
    ExitCode.UNAVAILABLE: "could not answer: a source is away or not ready",
    ExitCode.COMMIT_UNKNOWN: "a commit may or may not have landed; `ingest reconcile` says which",
    ExitCode.NOTHING_TO_DO: "nothing to do: all is committed, settled, altered or replayed already",
    ExitCode.PARTLY_DONE: "partly done: stopped before the end, or some records were refused",
    ExitCode.NOT_OWNER: "another process owns the table",
    ExitCode.STOPPED: "stopped rather than guess",
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
    commands = list(_commands(typer.main.get_command(app), "thermocline"))
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
    for title, family in {**families, "Thermocline itself is wrong": ours}.items():
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
        "`thermocline explain CODE` prints the same pages. *Retry* says whether it can pass by itself.",
        *tree,
        "## Exit codes",
        _table(("exit code", "meaning"), exits),
        "130 is Ctrl-C, and 141 an output that nobody reads any more.",
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
bad. Nested types (struct, list, map) are not supported: a column may be read from inside an object by its
`path`, or have the text of what is nested (`json`). See [formats](../formats.md).

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
        yield from ((f"{place}.{name}", inner) for name, inner in model.model_fields.items())


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
        Path: "folder",
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
