"""``thermocline jobs``: extracts as files, made by a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from thermocline.cli.file_format import Format
from thermocline.cli.output import counted, say, show, table
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.errors import BadParameter

if TYPE_CHECKING:
    from thermocline.client import Client, ExtractJob
    from thermocline.settings import ServingSettings

app = typer.Typer(no_args_is_help=True, help="Let a server write extracts to files.")

DEFAULT_URL = "http://127.0.0.1:8080"
ServerUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help=f"The server. Default: that of the configuration, or {DEFAULT_URL}."),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


@app.command()
def start(  # noqa: PLR0913, PLR0917  (a command has as many options)
    context: typer.Context,
    name: TableName,
    job_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="JOB", help="Id of the job. Starting again with the same id returns the same job."
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Only rows for which this is true.")
    ] = None,
    format: Annotated[Format, typer.Option(help="Format of the files.")] = Format.PARQUET,  # noqa: A002
    compression: Annotated[str | None, typer.Option(help="Compress csv or jsonl: gzip or zstd.")] = None,
    url: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Start an extract as files, one per bucket, all at one read point.

    Example: `thermocline jobs start profiles --id nightly-2026-12-01`
    """
    names = [column.strip() for column in columns.split(",")] if columns else None
    with _client(context, url) as client:
        job = client.start_extract(
            name, job_id=job_id, format=format, columns=names, where=where, compression=compression
        )
    _show([job], as_json)


@app.command("list")
def list_(context: typer.Context, name: TableName, url: ServerUrl = None, as_json: AsJson = False) -> None:
    """List a table's jobs, oldest first."""
    with _client(context, url) as client:
        jobs = client.extract_jobs(name)
    _show(jobs, as_json, is_list=True)


@app.command()
def status(
    context: typer.Context, name: TableName, job_id: JobId, url: ServerUrl = None, as_json: AsJson = False
) -> None:
    """Show a job's progress."""
    with _client(context, url) as client:
        job = client.extract_job(name, job_id)
    _show([job], as_json)


@app.command()
def cancel(
    context: typer.Context, name: TableName, job_id: JobId, url: ServerUrl = None, as_json: AsJson = False
) -> None:
    """Cancel a job, or delete the files of one that is over."""
    with _client(context, url) as client:
        job = client.cancel_extract(name, job_id)
    _show([job], as_json)
    if job.state != "cancelled":  # the server answers with the job as it was
        say("the job ends, and its files are deleted, within seconds")


@app.command()
def fetch(
    context: typer.Context,
    name: TableName,
    job_id: JobId,
    folder: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files.")],
    url: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Download a job's files; resumable.

    Waits until the job is complete, and continues after a broken connection. Keeps what was already
    downloaded: if a fetch fails, run the same command again. Each file appears when it is complete;
    manifest.json is the last. Deletes files of another job that were fetched into DIR before.
    """
    with _client(context, url) as client, _progress() as progress:
        task = progress.add_task("waiting", total=None)
        job = client.await_extract(
            name, job_id, progress=lambda job: progress.update(task, description=_stage(job))
        )
        progress.update(task, description="download", total=job.bytes)
        try:
            client.download_extract(
                job, folder, progress=lambda so_far: progress.update(task, completed=so_far)
            )
        except OSError as error:
            raise BadParameter(name="-o", problem=f"{folder}: {error.strerror}") from error
    _show([job], as_json)


@contextmanager
def _client(context: typer.Context, url: str | None) -> Iterator[Client]:
    """Opens a client, whose errors are raised as those of commands."""
    from thermocline.cli.server_access import server_access
    from thermocline.cli.server_answers import server_errors
    from thermocline.client import Client

    own = None if url else _configured(context)
    url = url or (DEFAULT_URL if own is None else own.url)
    access = server_access(own)
    with server_errors(url), Client(url, **access) as client:
        yield client


def _configured(context: typer.Context) -> ServingSettings | None:
    settings = session_of(context).settings_if_any()
    return None if settings is None else settings.serving


def _stage(job: ExtractJob) -> str:
    return f"{job.state}: {job.buckets_done} of {job.buckets} buckets"


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _show(jobs: list[ExtractJob], as_json: bool, is_list: bool = False) -> None:
    rows = [
        (
            job.id,
            job.state,
            f"{job.buckets_done}/{job.buckets}",
            job.rows,
            job.bytes,
            job.problem or job.location or "",
        )
        for job in jobs
    ]
    found: list[dict[str, Any]] = [
        asdict(job) | {"read_point": job.read_point and job.read_point.to_dict()} for job in jobs
    ]
    shown = table(("job", "state", "buckets", "rows", "bytes", "problem or location"), rows)
    text = shown if jobs else Text(counted(0, "job"))
    show({"extracts": found} if is_list else found[0], text, as_json)
