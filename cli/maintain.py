"""``thermocline maintain``: see what a table costs its readers, what is worth a rewrite, and do it."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.filesize import decimal as shown_bytes
from rich.text import Text

from thermocline.cli.maintain_progress import shown_progress
from thermocline.cli.output import counted, say, show, table
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.cli.stopping import stop_event
from thermocline.errors import ExitCode, StorageFailed, TableMissing, first_line
from thermocline.process.clock import SystemClock, iso_time
from thermocline.text.typed import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from thermocline.maintenance.measure import BucketMeasure, FileMeasure, TableMeasure
    from thermocline.maintenance.orphans import Orphans
    from thermocline.maintenance.plan import PlannedTask
    from thermocline.maintenance.status import Examined
    from thermocline.settings import Settings

BudgetSeconds = Annotated[
    float | None,
    typer.Option(
        "--budget-seconds",
        metavar="SECONDS",
        min=0,
        help="Start no more rewrites once they would take longer than this in total.",
    ),
]
PlannedSeconds = Annotated[
    float | None,
    typer.Option(
        "--budget-seconds", metavar="SECONDS", min=0, help="Leave out rewrites beyond this total time."
    ),
]
BudgetBytes = Annotated[
    str | None,
    typer.Option("--budget-bytes", metavar="SIZE", help="Rewrite at most this much in total, such as 10GB."),
]
PlannedBytes = Annotated[
    str | None,
    typer.Option(
        "--budget-bytes", metavar="SIZE", help="Leave out rewrites beyond this total size, such as 10GB."
    ),
]

_OUTCOMES = {
    ExitCode.DONE: "done",
    ExitCode.PARTLY_DONE: "partly done",
    ExitCode.NOTHING_TO_DO: "nothing to do",
}

app = typer.Typer(
    help="Rewrite, expire and clean up files. Keeps a table fast to read.",
    no_args_is_help=True,
)


@app.command()
def run(
    context: typer.Context,
    name: TableName,
    budget_seconds: BudgetSeconds = None,
    budget_bytes: BudgetBytes = None,
    delete_orphans: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            help="Approve deleting up to COUNT orphans when there are unusually many; "
            "`maintain orphans` prints the number.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Do all worthwhile maintenance once, then exit (for cron).

    `ingest run` maintains its tables by itself, and must not run at the same time. Exit codes: 0 if all is
    done, 10 if there was nothing to do, 20 if something is left to do, 30 if another process owns the table.
    """
    session = session_of(context)
    settings = session.settings()
    settings.table(name)
    session.configure_logs("warning")
    from thermocline.maintenance.plan import Budget
    from thermocline.maintenance.run import maintain

    budget = Budget(_bytes(budget_bytes), budget_seconds)
    with stop_event() as stop, shown_progress() as progress:
        done, code = maintain(settings, name, budget, SystemClock(), stop, delete_orphans, say, progress)
    lines = [
        f"{name}: {_OUTCOMES[code]}",
        f"  rewrites    {done.rewrites:,}: {counted(done.files_before, 'file')} into {done.files_after:,}",
        f"              {shown_bytes(done.read_bytes)} read, {done.dead_rows:,} dead rows removed",
        f"  manifests   rewritten {counted(done.manifest_rewrites, 'time')}",
        f"  expired     {counted(done.expired, 'snapshot')}",
        f"  swept       {counted(done.swept_files, 'file')}, {shown_bytes(done.swept_bytes)}",
        f"  orphans     {done.orphans:,} deleted",
    ]
    if done.failures:
        lines.append(f"  failed      {counted(done.failures, 'step')}: the log says why")
    if code == ExitCode.PARTLY_DONE:
        lines.append(f"more is left to do: {plan_command(name, budget_seconds, budget_bytes)}")
    shown = lines[:1] if code == ExitCode.NOTHING_TO_DO else lines
    show({"table": name, **asdict(done), "exit_code": code}, Text("\n".join(shown)), as_json)
    return code


@app.command()
def plan(
    context: typer.Context,
    name: TableName,
    budget_seconds: PlannedSeconds = None,
    budget_bytes: PlannedBytes = None,
    as_json: AsJson = False,
) -> None:
    """Show worthwhile rewrites, with reasons, gains and costs.

    Changes nothing.
    """
    settings = session_of(context).settings()
    from thermocline.maintenance.plan import Budget
    from thermocline.maintenance.status import examine

    found = examine(settings, name, Budget(_bytes(budget_bytes), budget_seconds))
    chosen = {task.bucket for task in found.plan.tasks}
    headings = ("bucket", "files", "size", "saves per hour", "for", "costs", "gain", "why")
    rows = [
        (
            task.bucket,
            len(task.files),
            shown_bytes(task.bytes),
            _seconds(task.saves_ms),
            f"{task.lasts_hours:,.1f} h",
            _seconds(task.cost_ms),
            f"{task.score:,.1f}x",
            task.reason + (" (forced)" if task.is_forced else "") + _left_out(task, chosen),
        )
        for task in found.plan.wanted
    ]
    text = f"Together they would take one core {_seconds(1000 * found.plan.debt_seconds)}"
    if found.plan.bucket_change_seconds:
        text += f", and {_seconds(1000 * found.plan.bucket_change_seconds)} for the change of buckets"
    words = Text(f"{text}." if rows else f"{name}: no rewrite is worthwhile")
    document = {
        "table": name,
        "debt_seconds": found.plan.debt_seconds,
        "bucket_change_seconds": found.plan.bucket_change_seconds,
        "tasks": [_task_document(task, chosen) for task in found.plan.wanted],
    }
    show(document, Group(table(headings, rows), words) if rows else words, as_json)


@app.command()
def explain(
    context: typer.Context,
    name: TableName,
    bucket: Annotated[int, typer.Argument(metavar="BUCKET", help="Bucket number, from 0.")],
    as_json: AsJson = False,
) -> None:
    """Explain what reads of one bucket cost, and what would help."""
    settings = session_of(context).settings()
    from thermocline.maintenance.status import examine

    found = examine(settings, name)
    measured = found.bucket(bucket, name)
    model = found.model(measured)
    now, best = model.now_ms(), model.after_ms(measured.files)
    task = next((one for one in found.plan.wanted if one.bucket == bucket), None)
    facts = (
        ("data files", f"{len(measured.files):,}"),
        ("size", shown_bytes(measured.bytes)),
        ("rows", f"{measured.rows:,}"),
        ("dead rows", f"{measured.dead_rows:,} ({measured.dead_ratio:.0%})"),
        ("files with deletes", f"{measured.delete_files:,}"),
        ("files per lookup", f"{measured.depth:.1f}"),
        *_bucket_change(found.measured, measured.files),
        ("scan", f"{now.scan:,.1f} ms; {best.scan:,.1f} ms after rewriting all"),
        ("lookup", f"{now.lookup:,.2f} ms; {best.lookup:,.2f} ms after rewriting all"),
    )
    advice = _advice(found, measured, task)
    rates = (
        f"Assumes {found.settings.scans_per_hour:g} scans per hour and "
        f"{found.settings.lookups_per_second:g} lookups per second over all buckets (see [maintenance])."
    )
    document = {
        "table": name,
        "bucket": bucket,
        "files": len(measured.files),
        "bytes": measured.bytes,
        "rows": measured.rows,
        "dead_rows": measured.dead_rows,
        "files_with_deletes": measured.delete_files,
        "depth": measured.depth,
        "scan_ms": now.scan,
        "scan_ms_at_best": best.scan,
        "lookup_ms": now.lookup,
        "lookup_ms_at_best": best.lookup,
        "task": None if task is None else _task_document(task, {bucket}),
    }
    show(document, Group(table(("", ""), facts), Text(advice), Text(rates)), as_json)


@app.command()
def status(context: typer.Context, name: TableName, as_json: AsJson = False) -> None:
    """Show the table's files, maintenance debt and last runs."""
    settings = session_of(context).settings()
    from thermocline.maintenance.status import examine

    found = examine(settings, name)
    try:
        last = found.last_runs()
    except (OSError, ValueError) as error:
        raise StorageFailed(table=name, detail=first_line(error)) from error
    measured = found.measured
    dead = measured.dead_rows / measured.rows if measured.rows else 0.0
    size = shown_bytes(measured.bytes)
    manifests = f"{measured.manifests:,} manifests"
    debt = f"{_seconds(1000 * found.plan.debt_seconds)} on one core"
    facts = (
        ("data files", f"{measured.files:,} in {len(measured.buckets):,} buckets, {size}"),
        *_bucket_change(measured, [file for bucket in measured.buckets.values() for file in bucket.files]),
        ("dead rows", f"{measured.dead_rows:,} of {measured.rows:,} ({dead:.0%})"),
        ("files per lookup", f"{_worst_depth(found):.1f} in the worst bucket"),
        (
            "metadata",
            f"{measured.snapshots:,} snapshots, {manifests}, {shown_bytes(measured.metadata_bytes)}",
        ),
        ("planning time", f"{found.measuring_seconds:.2f} s"),
        ("debt", f"{debt}, for {counted(len(found.plan.wanted), 'worthwhile rewrite')}"),
        ("last rewrite", _when(last.rewritten_ms)),
        ("last expiry", _when(last.expired_ms)),
        (
            "files to be deleted",
            f"about {shown_bytes(last.waiting_bytes)} of {counted(last.waiting_snapshots, 'old snapshot')}",
        ),
        ("orphans", f"{shown_bytes(last.orphan_bytes)}, as last seen"),
    )
    document = {
        "table": name,
        "files": measured.files,
        "older_files": measured.older_files,
        "bytes": measured.bytes,
        "rows": measured.rows,
        "dead_rows": measured.dead_rows,
        "depth_worst": _worst_depth(found),
        "snapshots": measured.snapshots,
        "manifests": measured.manifests,
        "manifest_bytes": measured.manifest_bytes,
        "metadata_bytes": measured.metadata_bytes,
        "measuring_seconds": found.measuring_seconds,
        "debt_seconds": found.plan.debt_seconds,
        "rewrites_wanted": len(found.plan.wanted),
        **asdict(last),
    }
    show(document, table(("", ""), facts), as_json)


@app.command()
def orphans(context: typer.Context, name: TableName, as_json: AsJson = False) -> None:
    """List orphaned files, and when each will be deleted.

    An orphan is a file of the table, or of its quarantine, that no snapshot refers to. Changes nothing.
    """
    settings = session_of(context).settings()
    from thermocline.maintenance.orphans import SEEN_APART_MS

    now_ms = SystemClock().now_ms()
    looked, is_surprising = _orphans_of(settings, name, now_ms)
    found, shared, due = looked.found, looked.shared, len(looked.due(now_ms))
    rows = [
        (one.path, shown_bytes(one.bytes), iso_time(one.modified_ms), iso_time(one.seen_ms + SEEN_APART_MS))
        for one in found
    ]
    words = [
        f"{counted(len(rows), 'orphan')} of {looked.files:,} files, {due:,} to be deleted by the next run"
    ]
    if shared:
        words.append(f"nothing is deleted: {shared}")
    elif is_surprising:
        approve = command(f"maintain run {name} --delete-orphans {due}")
        words.append(f"surprisingly many, so nothing is deleted yet; check them, then run: {approve}")
    document = {
        "table": name,
        "files": looked.files,
        "due": due,
        "shared": shared,
        "surprising": is_surprising,
        "orphans": [asdict(one) for one in found],
    }
    text = Text("\n".join(words))
    listed = table(("file", "size", "modified", "deleted after"), rows)
    show(document, Group(listed, text) if rows else text, as_json)


def _orphans_of(settings: Settings, name: str, now_ms: int) -> tuple[Orphans, bool]:
    """The orphans of a table and its quarantine, and whether those of one of them are surprisingly many."""
    from thermocline.iceberg.catalog import open_table
    from thermocline.ingest.quarantine import open_quarantine
    from thermocline.maintenance.orphans import Orphans, find_orphans

    tables = [open_table(settings, name)]
    with suppress(TableMissing):
        tables.append(open_quarantine(tables[0].catalog, name, settings.table(name).identifier))
    try:
        looked = [find_orphans(one, now_ms) for one in tables]
    except (OSError, ValueError) as error:
        raise StorageFailed(table=name, detail=first_line(error)) from error
    found = tuple(orphan for one in looked for orphan in one.found)
    shared = next((one.shared for one in looked if one.shared), "")
    whole = Orphans(found, sum(one.files for one in looked), shared)
    return whole, any(one.is_surprising(now_ms) for one in looked)


def plan_command(name: str, budget_seconds: float | None, budget_bytes: str | None) -> str:
    """The command that shows what is left, with the budget that it was left by."""
    words = ["maintain", "plan", name]
    words += [] if budget_seconds is None else ["--budget-seconds", f"{budget_seconds:g}"]
    words += [] if budget_bytes is None else ["--budget-bytes", budget_bytes]
    return command(shlex.join(words))


def _bucket_change(measured: TableMeasure, files: Sequence[FileMeasure]) -> Iterator[tuple[str, str]]:
    """How far files are, while the table's number of buckets is being changed."""
    left = sum(file.buckets != measured.buckets_written for file in files)
    if left:
        yield (
            "bucket change",
            f"to {measured.buckets_written}; {left:,} of {len(files):,} files left to rewrite",
        )


def _worst_depth(found: Examined) -> float:
    return max((bucket.depth for bucket in found.measured.buckets.values()), default=0.0)


def _task_document(task: PlannedTask, chosen: set[int]) -> dict[str, Any]:
    return {
        "bucket": task.bucket,
        "files": len(task.files),
        "bytes": task.bytes,
        "reason": task.reason,
        "saves_ms_per_hour": task.saves_ms,
        "lasts_hours": task.lasts_hours,
        "cost_ms": task.cost_ms,
        "score": task.score,
        "forced": task.is_forced,
        "within_budget": task.bucket in chosen,
    }


def _left_out(task: PlannedTask, chosen: set[int]) -> str:
    return "" if task.bucket in chosen else " (beyond the budget)"


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    from thermocline.settings.values import size_of

    try:
        size = size_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    assert isinstance(size, int)
    return size


def _seconds(ms: float) -> str:
    seconds = ms / 1000
    return f"{seconds / 60:,.1f} min" if seconds >= 120 else f"{seconds:,.1f} s"


def _when(at_ms: int | None) -> str:
    return "none in the table's history" if at_ms is None else iso_time(at_ms)


def _advice(found: Examined, measured: BucketMeasure, task: PlannedTask | None) -> str:
    """What maintenance makes of a bucket, by the rules of `maintenance.plan`."""
    from thermocline.maintenance.plan import FORCED_DEAD_RATIO

    if not measured.files:
        return "Nothing to rewrite: the table has no row in this bucket."
    forced = f"more than {FORCED_DEAD_RATIO:.0%} of its rows are dead"
    is_forced = measured.dead_ratio > FORCED_DEAD_RATIO
    if task is not None:
        first = "Worth rewriting"
        if task.is_forced and not task.is_bucket_change:
            first = f"To be rewritten in any case, since {forced}"
        return (
            f"{first}: {task.reason}. That would read {counted(len(task.files), 'file')} "
            f"({shown_bytes(task.bytes)}), take {_seconds(task.cost_ms)}, and save readers "
            f"{_seconds(task.saves_ms)} per hour for {task.lasts_hours:,.1f} hours."
        )
    if found.measured.remembers_deletes:
        return "Not rewritten: maintenance rewrites no table with order by a column; only batches join files."
    if is_forced:
        return f"Not to be rewritten, though {forced}: ingest will merge the files by itself within an hour."
    return (
        "Not worth rewriting: it would cost more than readers save within a day, or until ingest "
        "merges the small files by itself."
    )
