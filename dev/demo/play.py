"""The demo from beginning to end: build, watch, verify, leave nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rich.console import Console

from thermocline.cli.server_access import KEY_FILE
from thermocline.dev.demo.figures import Scene
from thermocline.dev.demo.invocation import path_typed, program
from thermocline.dev.demo.key import key_path
from thermocline.dev.demo.reporter import Reporter
from thermocline.dev.demo.site import DemoOptions, Site, opened
from thermocline.dev.demo.story import ADA
from thermocline.dev.demo.traffic import Traffic
from thermocline.dev.demo.verdict import Check, checks_of
from thermocline.dev.demo.views import ANALYST, View, rows_sql
from thermocline.dev.interrupts import as_keyboard_interrupt, undisturbed
from thermocline.dev.stack import TABLE
from thermocline.dev.workload import Workload
from thermocline.errors import ExitCode, VerdictBad
from thermocline.process.clock import SystemClock
from thermocline.text.shown import json_text

FOLDER: Final = Path(".thermocline") / "demo"
WATCH_SECONDS: Final = 0.5
OPENING: Final = "Thermocline: a Kafka topic, an Iceberg table that lags behind it, and one answer from both."


def run(options: DemoOptions) -> int:
    """Plays the demo. Returns `ExitCode.DONE` when verify and all other comparisons agree.

    Raises:
        VerdictBad: something differs; the folder is kept then.
        EngineFailed: a process ended; the folder with its log is kept.
        KeyboardInterrupt: Ctrl-C or SIGTERM; nothing is left.
    """
    clock = SystemClock()
    console = Console(highlight=False, emoji=False, markup=False, quiet=options.as_json)
    with as_keyboard_interrupt(), Reporter(clock, console) as reporter, _folder(options, reporter) as folder:
        reporter.say(f"\n{OPENING}\n", "bold")
        with opened(folder, options, reporter, clock) as site:
            scene, checks = _play(site, reporter)
            bad = [f"{name}: {check.outcome}" for name, check in checks.items() if check.differences]
            _conclude(scene, bool(bad), reporter)
            if options.as_json:
                document = _document(site, reporter, scene, checks)
                print(json_text({"agrees": not bad, **document}, indent=2), flush=True)
            if options.keep:
                _stay(site, reporter)
        if bad:
            raise VerdictBad(detail="; ".join(bad))
        if not options.keep:
            reporter.say(_how_to_go_further(options))
    return ExitCode.DONE


def _play(site: Site, reporter: Reporter) -> tuple[Scene, dict[str, Check]]:
    options = site.options
    workload = Workload(options.seed, options.user_count, options.keys_per_user)
    rows = list(workload.load())
    site.open(reporter, rows)
    traffic = Traffic(site, workload, sorted({event.row[:2] for event in rows}))
    scene = traffic.run(site.stack.check, reporter.show)
    reporter.show(scene, is_last=True)
    reporter.say("\nThe traffic has stopped. What the log says, and what was answered:\n", "bold")
    return scene, checks_of(site, [some.kept for some in traffic.readers], reporter)


def _conclude(scene: Scene, is_bad: bool, reporter: Reporter) -> None:
    if is_bad:
        reporter.say("\n✗ Something differs: that is a bug.\n", "bold red")
        return
    read_paths = "Lookups, extract and views" if scene.views else "Lookups and extract"
    reporter.say(f"\n✓ {read_paths} agree with the log, key by key.", "bold green")
    reporter.say(_figures(scene))


def _figures(scene: Scene) -> str:
    fresh, views = scene.freshness, scene.views
    figures = f"after {fresh.p50:.0f} ms, p99 {fresh.p99:.0f} ms"
    text = f"  What Kafka had acknowledged was in a lookup {figures}.\n"
    if views:
        by_key, live = (views.freshness_ms[view] for view in (View.BY_KEY, View.LIVE))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        text += f"""\
  Through Trino it was there by key after {by_key.p50:,.0f} ms, p99 {by_key.p99:,.0f} ms; \
in the full view after {live.p50:,.0f} ms, p99 {live.p99:,.0f} ms.
  Trino shared this machine's {cores} cores with the broker, Spark, the server and the traffic. With nothing
  else running, it takes about 0.5 s by key, and 3 s in the full view (docs/live-views.md).
"""
    return text


def _document(site: Site, reporter: Reporter, scene: Scene, checks: Mapping[str, Check]) -> dict[str, object]:
    """For JSON; the addresses hold for as long as the servers stay."""
    trino = site.stack.trino
    return {
        "options": asdict(site.options),
        "checks": {name: asdict(check) for name, check in checks.items()},
        **scene.to_dict(),
        "tasks": [
            {"title": task.title, "seconds": task.seconds, "note": task.note} for task in reporter.tasks
        ],
        "url": site.stack.url,
        "urls": site.stack.urls,
        **({"trino_url": trino.url} if trino else {}),
    }


def _how_to_go_further(options: DemoOptions) -> str:
    demo = f"{program('thermocline')} demo{' --lake' if options.lake else ''}"
    if options.trino:
        return f"\nTo stay and look around:  {demo} --trino --keep"
    return f"""
To stay and look around:  {demo} --keep
The same with Trino beside it (820 MB to fetch, once):  {demo} --trino"""


def _stay(site: Site, reporter: Reporter) -> None:
    reporter.say(how_to_go_on(site))
    with suppress(KeyboardInterrupt):
        while True:
            site.stack.check()
            site.clock.sleep(WATCH_SECONDS)


def how_to_go_on(site: Site) -> str:
    """The commands to look around with, as they are typed here."""
    stack = site.stack
    command = f"{program('thermocline')} --config {path_typed(stack.config_path)}"
    key = path_typed(key_path(stack.folder))
    in_trino = how_to_ask(stack.trino.url, site.table_in_trino) if stack.trino else ""
    return f"""\
It stays up until Ctrl-C, at {stack.url}, and answers who has its key (the password at {stack.url}/docs):

  export {KEY_FILE}={key}
  curl -u ":$(cat {key})" '{stack.url}/v1/tables/{TABLE}/rows?app_id=7&user_id=ada'
  {command} lookup {TABLE} app_id=7 user_id=ada
  {command} extract {TABLE} -o {TABLE}.parquet
  {command} verify {TABLE} --url {stack.url}
  {command} status
{in_trino}"""


def how_to_ask(url: str, table_in_trino: str) -> str:
    """The ways to ask the Trino that stays up."""
    sql = rows_sql(f"{table_in_trino}_{View.BY_KEY}", [ADA])
    place = urlsplit(url)
    connected = f"connect(host='{place.hostname}', port={place.port}, user='{ANALYST}')"
    # In the double quotes of a shell.
    asked = f'{connected}.cursor().execute(\\"{sql}\\").fetchall()'
    return f"""
Trino is at {url}. Every user may read the views, and nothing else, without a password; such as {ANALYST}:

  {program("python")} -c "from trino.dbapi import connect; print({asked})"
  trino --server {url} --user {ANALYST} --execute "{sql}"
"""


@contextmanager
def _folder(options: DemoOptions, reporter: Reporter) -> Iterator[Path]:
    """A fresh folder; it stays where that was asked for, or where something went wrong."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=FOLDER)).absolute()
    is_kept = options.keep
    try:
        yield folder
    except Exception:
        is_kept = True
        raise
    finally:
        if is_kept:
            reporter.say(f"Its configuration, logs and data stay in {folder}.")
        else:
            with undisturbed():
                shutil.rmtree(folder, ignore_errors=True)
