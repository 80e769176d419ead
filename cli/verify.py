"""``thermocline verify``: a user's own proof that log, table, hot tier, lookups and extracts agree."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.output import counted, say, show, table
from thermocline.cli.session import TableName, Url, session_of
from thermocline.errors import BadParameter, ExitCode
from thermocline.text.shown import Columns, json_text
from thermocline.text.typed import command

if TYPE_CHECKING:
    from rich.console import RenderableType

    from thermocline.verify.finding import Finding
    from thermocline.verify.report import Report
    from thermocline.verify.watch import VerifyRound

MEGABYTE: Final = 1 << 20
SEED_MAX: Final = 2**31
SHOWN_MAX: Final = 100
"""Keys whose history is told: as `verify.history.KEYS_MAX`, which is not imported for every command."""


def verify(  # noqa: PLR0913, PLR0917  (a command has as many options)
    context: typer.Context,
    name: TableName,
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="COLUMN=VALUE", help="Check only this entity: app_id=7 user_id=ada"),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Check only N random entities.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Random seed of --sample and --watch.")
    ] = None,
    url: Url = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep checking random entities until stopped.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --watch: stop after this many rounds.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="With --watch: continue after a difference.")
    ] = False,
    shown: Annotated[
        int,
        typer.Option(
            "--show", min=0, max=SHOWN_MAX, metavar="N", help="Show the history of up to N differing keys."
        ),
    ] = 10,
    memory_mb: Annotated[
        int, typer.Option(metavar="N", min=64, help="Memory budget; beyond it, data spills to $TMPDIR.")
    ] = 512,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document; with --watch, one line per round.")
    ] = False,
) -> int:
    """Replay the log and compare it with all read paths.

    Compares the table, the hot tier, lookups and an extract with the log, key by key. Changes nothing. Exit
    codes: 0 they agree; 1 they differ; 3 not everything could be compared, or the log holds nothing to
    compare the rows with.

    Puts data into $TMPDIR: first the rows of an extract (uncompressed), then these rows, the table's rows and
    all records of the log (compressed); of a sample or an entity, only the extract. Without --url, it also
    puts the uncommitted records there.
    """
    session = session_of(context)
    settings = session.settings()
    settings.table(name)
    if key and sample is not None:
        raise BadParameter(name="--sample", problem="give it or an entity, not both")
    if not watch:
        _check_not_watching(rounds, keep_going)
    from thermocline.cli.read import parse_key
    from thermocline.cli.stopping import orderly_end, stop_event
    from thermocline.cli.verify_progress import shown_progress
    from thermocline.cli.verify_read_paths import open_read_paths
    from thermocline.process.clock import SystemClock
    from thermocline.verify.verifier import LOOKUPS, Choices, Verifier
    from thermocline.verify.watch import POOL, VerifyWatch

    choices = Choices(
        seed=random.randrange(SEED_MAX) if seed is None else seed,
        sample=sample,
        entity=parse_key(key) if key else None,
        lookups=POOL if watch else LOOKUPS,
        shown=shown,
        memory_bytes=memory_mb * MEGABYTE,
    )
    with orderly_end(), stop_event() if watch else nullcontext() as stop:
        clock = SystemClock()
        with shown_progress(clock) as progress:
            verifier = Verifier(
                settings, name, lambda: open_read_paths(settings, name, url), choices, clock, progress
            )
            report, lookups = verifier.verify()
        if stop is None:
            _show(report, choices.seed, as_json)
            return _code(report)
        _show_first(report, choices.seed, as_json)
        if lookups is not None and (report.agrees or keep_going):
            watching = VerifyWatch(verifier, lookups, report, LOOKUPS)
            _watch(watching.rounds(stop, rounds), keep_going, as_json)
        return _code(report)


def _code(report: Report) -> ExitCode:
    if not report.agrees:
        return ExitCode.BAD_ANSWER
    return ExitCode.DONE if report.is_complete else ExitCode.UNAVAILABLE


def _check_not_watching(rounds: int | None, keep_going: bool) -> None:
    if rounds is not None or keep_going:
        option = "--keep-going" if rounds is None else "--rounds"
        raise BadParameter(name=option, problem="it goes with --watch")


def _show(report: Report, seed: int, as_json: bool) -> None:
    document = {**report.to_dict(), "seed": seed, "exit_code": int(_code(report))}
    show(document, Group(*_described(report, seed)), as_json)


def _described(report: Report, seed: int) -> Iterator[RenderableType]:
    point = report.read_point
    yield table(("", report.table), report.summary())
    if point is not None:
        yield Text(f"read point: {point.to_header()}; entities by seed {seed}", style="dim")
    if report.counts:
        yield Text()
        yield table(("difference", "count"), sorted(report.counts.items()))
        yield from _findings(report.findings)
    if report.agrees:
        words = "they agree" if report.is_complete else "nothing differs, but not all could be compared"
        if unjudged := report.unjudged.total():
            words += f"; {counted(unjudged, 'key')} could not be judged"
        yield Text(f"{report.table}: {words}", style="bold green" if report.is_complete else "bold yellow")
    else:
        yield Text("\nto see what a difference means: " + command("explain CODE"), style="dim")
        yield Text(f"{report.table}: {counted(report.counts.total(), 'difference')}", style="bold red")


def _findings(findings: Sequence[Finding]) -> Iterator[Text]:
    """Those with a history, and of every code at least the first one."""
    codes: set[str] = set()
    left_out = 0
    for finding in findings:
        if not finding.history and finding.code in codes:
            left_out += 1
            continue
        codes.add(finding.code)
        key = Columns(finding.key or {})
        yield Text.assemble("\n", (finding.code, "bold red"), f" {key}\n  {finding.what}")
        yield from (Text(f"    {line}", style="dim") for line in finding.history)
    if left_out:
        yield Text(
            f"\n{counted(left_out, 'more difference')} of these kinds: --json lists them, --show N tells"
        )


def _watch(rounds: Iterator[VerifyRound], keep_going: bool, as_json: bool) -> None:
    """Shows the rounds after the first one, until somebody stops them, or a difference does."""
    for one in rounds:
        _show_round(one, as_json)
        if one.differences and not keep_going:
            return


def _show_first(report: Report, seed: int, as_json: bool) -> None:
    if not as_json:
        _show(report, seed, as_json=False)
        return
    _line({"round": 1, **report.to_dict(), "seed": seed})


def _show_round(one: VerifyRound, as_json: bool) -> None:
    if as_json:
        _line(one.to_dict())
        return
    words = f"round {one.number}: {one.lookups} lookups, {one.extracted:,} extracted rows"
    if one.away is not None:
        say(f"{words}; [{one.away.code}] {one.away.what}")
        return
    differ = ", ".join(f"{count} {code}" for code, count in sorted(one.differences.items()))
    text = Text(f"{words}, {one.records:,} records: {differ or 'no difference'}")
    show({}, Group(text, *_findings(one.findings)), as_json=False)


def _line(document: object) -> None:
    sys.stdout.write(json_text(document) + "\n")
    sys.stdout.flush()
