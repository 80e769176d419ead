"""The entry point: runs one command, and ends it with an exit code and at most one error."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import thermocline
from thermocline.cli import (
    apply,
    audit,
    client,
    config,
    demo,
    dev,
    doctor,
    explain,
    ingest,
    init,
    jobs,
    maintain,
    quarantine,
    read,
    serve,
    sql,
    status,
    table,
    topic,
    try_record,
    verify,
    version,
    views,
)
from thermocline.cli.output import discard_stdout, show_error
from thermocline.cli.session import Session
from thermocline.errors import BadParameter, DependencyMissing, ExitCode, InternalError, ThermoclineError
from thermocline.process import logs, safe_path
from thermocline.process.answered import exit_now
from thermocline.process.core_files import leave_no_core
from thermocline.process.masking import mask_password
from thermocline.text.typed import typed

INTERRUPTED: Final = 130  # what shells give for a command that ended by Ctrl-C
READER_GONE: Final = 141  # and for one whose output nobody reads any more
TRACEBACK_VARIABLE: Final = "THERMOCLINE_TRACEBACK"
# The optional part of the installation that a package comes with.
DEVELOPMENT: Final = "thermocline.dev"
PARTS: Final = {
    **dict.fromkeys(("pandas", "py4j", "pyspark"), "ingest"),
    "psycopg": "postgres",
    **dict.fromkeys(
        (
            *("duckdb", "fastapi", "fastapi_offline", "httptools", "jinja2", "jwt", "lmdb", "prompt_toolkit"),
            *("sqlglot", "uvicorn", "uvloop", "zstandard"),
        ),
        "serving",
    ),
    "trino": "views",
}

log = logging.getLogger(__name__)

app = typer.Typer(
    name="thermocline",
    help="Serve an Iceberg table as of now: upserts from Kafka, overlaid at an exact offset.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # it would take [tables.NAME] for markup
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(client.app, name="client")
app.add_typer(config.app, name="config")
app.add_typer(table.app, name="table")
app.add_typer(topic.app, name="topic")
app.add_typer(ingest.app, name="ingest")
app.add_typer(jobs.app, name="jobs")
app.add_typer(maintain.app, name="maintain")
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(views.app, name="views")
app.add_typer(audit.app, name="audit")
app.command("init")(init.init)
app.command("apply")(apply.apply)
app.command("dev")(dev.dev)
app.command("demo")(demo.demo)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.command("serve")(serve.serve)
app.command("lookup")(read.lookup)
app.command("refused")(read.refused)
app.command("extract")(read.extract)
app.command("try")(try_record.try_record)
app.command("sql")(sql.sql)
app.command("verify")(verify.verify)
app.command("explain")(explain.explain)
app.command("version")(version.version)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"thermocline {thermocline.__version__}")
        raise typer.Exit


@app.callback()
def global_options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Configuration file. Default: $THERMOCLINE_CONFIG, then ./thermocline.toml."
        ),
    ] = None,
    log_level: Annotated[
        logs.Level | None,
        typer.Option(
            help="Minimum log level. Default: info for `serve`, `ingest run` and `views publish --watch`, "
            "otherwise warning."
        ),
    ] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log as JSON, one object per line.")] = False,
    version: Annotated[  # noqa: ARG001  (typer calls what prints it)
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """The options of every command."""
    context.obj = Session(config, log_level, log_json)
    context.obj.configure_logs("warning")


@cache
def all_commands() -> Any:
    """The group of all commands, which takes a tenth of a second to build."""
    return typer.main.get_command(app)


def main() -> None:
    """The ``thermocline`` command."""
    safe_path.pass_on()
    leave_no_core()
    code = run(sys.argv[1:])
    exit_now(code)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs one command; its exit code. Prints at most one error."""
    with typed(arguments):
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        result = all_commands()(list(arguments), prog_name="thermocline", standalone_mode=False)
        sys.stdout.flush()
    except ThermoclineError as error:
        return _fail(error, arguments)
    except typer.TyperException as error:
        return _refuse(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _end_quietly()
    except SystemExit as ended:
        if isinstance(
            ended.__context__, BrokenPipeError
        ):  # typer ends with 1 then, which means a bad answer here
            return _end_quietly()
        raise
    except Exception as error:  # noqa: BLE001 -- this is where every bug ends, as an InternalError
        return _fail(_known(error, arguments), arguments, bug=error)
    return result if isinstance(result, int) else ExitCode.DONE


def _fail(error: ThermoclineError, arguments: Sequence[str], bug: Exception | None = None) -> int:
    try:
        sys.stdout.flush()
    except OSError:  # the end would try it again, and give its own exit code
        discard_stdout()
    show_error(error, as_json="--json" in arguments, is_log="--log-json" in arguments)
    log.debug("where it came from", exc_info=bug or error)
    if os.environ.get(TRACEBACK_VARIABLE) == "1":
        sys.stderr.write(mask_password("".join(traceback.format_exception(bug or error))))
    return error.exit_code


def _refuse(error: typer.TyperException, arguments: Sequence[str]) -> int:
    """A command line that cannot be understood, or that is empty, and was answered with the help."""
    message = error.format_message()
    if not message:
        return ExitCode.USAGE
    if "--json" in arguments:
        sys.stderr.write(json.dumps({"code": "usage", "what": message, "exit_code": ExitCode.USAGE}) + "\n")
    else:
        command = getattr(getattr(error, "ctx", None), "command_path", "thermocline")
        sys.stderr.write(f"Error [usage]: {message}\n  Next    {command} --help\n")
    return ExitCode.USAGE


def _known(error: Exception, arguments: Sequence[str]) -> ThermoclineError:
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    missing = name.partition(".")[0]
    if missing in PARTS:
        return DependencyMissing.of_extra(f"the Python package {missing}", PARTS[missing])
    if name == DEVELOPMENT or name.startswith(f"{DEVELOPMENT}."):
        return DependencyMissing(
            what_is_missing="the part of Thermocline for `dev` and `demo`, which only a checkout has,",
            how_to_get="pip install -e '.[ingest,serving]'      (in a checkout of it; then repeat this)",
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return BadParameter(name="output", problem=error.strerror or str(error))
    return InternalError.of(error, f"`{_command_path(arguments)}`")


def _command_path(arguments: Sequence[str]) -> str:
    words, command = ["thermocline"], all_commands()
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument, command)
        if command.name == argument:
            words.append(argument)
    return " ".join(words)


def _end_quietly() -> int:
    """The reader of a pipe went away, as ``head`` does."""
    discard_stdout()
    return READER_GONE
