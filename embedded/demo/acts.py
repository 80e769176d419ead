"""The demo from beginning to end: build, watch, compare, leave nothing behind."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rich.console import Console

from embedded.demo.document import document_of
from embedded.demo.examination import examine
from embedded.demo.invocation import path_typed, program
from embedded.demo.lines import Lines
from embedded.demo.opening import open_site, running_stack
from embedded.demo.options import DemoOptions
from embedded.demo.scene import Scene, ViewFigures
from embedded.demo.screen import Screen
from embedded.demo.site import Site
from embedded.demo.stage import Stage
from embedded.demo.traffic import Traffic
from embedded.demo.verdict import Check
from embedded.demo.view_door import Connect
from embedded.demo.view_words import how_to_ask, why_no_faster
from embedded.interrupts import as_keyboard_interrupt, undisturbed
from embedded.stack import TABLE, Stack
from embedded.workload import Workload
from thermocline.errors import ExitCode, VerdictBad
from thermocline.process.clock import Clock, SystemClock

FOLDER: Final = Path(".thermocline") / "demo"
WATCH_SECONDS: Final = 0.5
OPENING: Final = "Thermocline: a Kafka topic, an Iceberg table that lags behind it, and one answer from both."


def run(options: DemoOptions, connect: Connect | None = None) -> int:
    """Plays the demo, with Trino where ``connect`` opens a session with it.

    Returns `ExitCode.DONE` when every answer agrees with the oracle.

    Raises:
        VerdictBad: some answer does not; the folder is kept then.
        EngineFailed: a process ended; the folder with its log is kept.
        KeyboardInterrupt: Ctrl-C or SIGTERM; nothing is left.
    """
    clock = SystemClock()
    with as_keyboard_interrupt(), _stage_for(options, clock) as stage, _new_folder(options, stage) as folder:
        stage.say(f"\n{OPENING}\n", "bold")
        with running_stack(folder, stage, connect is not None) as stack:
            site, scene, checks = _play(options, stack, stage, clock, connect)
            _conclude(stage, scene, checks)
            if options.as_json:
                document = document_of(options, stage.tasks, scene, checks, stack.url, site.trino_url)
                print(json.dumps(document, indent=2, ensure_ascii=False), flush=True)
            if options.keep:
                _stay(site, stage, clock)
        if not _all_agree(checks):
            bad = (f"{name}: {check.outcome}" for name, check in checks.items() if not check.agrees)
            raise VerdictBad(detail="; ".join(bad))
        if not options.keep:
            stage.say(_how_to_go_further(connect))
    return ExitCode.DONE


def _play(
    options: DemoOptions, stack: Stack, stage: Stage, clock: Clock, connect: Connect | None
) -> tuple[Site, Scene, dict[str, Check]]:
    workload = Workload(options.seed, options.user_count, options.keys_per_user)
    rows = list(workload.load())
    site = open_site(stack, stage, rows, clock, connect)
    traffic = Traffic(options, site, workload, sorted({event.row[:2] for event in rows}))
    traffic.run(stack.check, stage.show)
    stage.say("\nThe traffic has stopped.\n", "bold")
    scene = traffic.scene()
    return site, scene, examine(site, traffic, stage)


def _conclude(stage: Stage, scene: Scene, checks: Mapping[str, Check]) -> None:
    if not _all_agree(checks):
        stage.say("\n✗ Answers differ from the oracle: that is a bug.\n", "bold red")
        return
    fresh = scene.freshness
    doors = "Lookups, extract and views" if scene.views else "Lookups and extract"
    stage.say(f"\n✓ {doors} agree with the oracle, key by key.", "bold green")
    figures = f"after {fresh.p50_ms:.0f} ms, p99 {fresh.p99_ms:.0f} ms"
    stage.say(f"  What Kafka had acknowledged was in a lookup {figures}.")
    if scene.views:
        stage.say(_in_trino(scene.views))
        stage.say(f"  {why_no_faster()}")
    stage.say("")


def _in_trino(views: ViewFigures) -> str:
    by_key = f"by key after {views.by_key.p50_ms:,.0f} ms, p99 {views.by_key.p99_ms:,.0f} ms"
    live = f"in the full view after {views.live.p50_ms:,.0f} ms, p99 {views.live.p99_ms:,.0f} ms"
    return f"  Through Trino it was there {by_key}; {live}."


def _how_to_go_further(connect: Connect | None) -> str:
    demo = f"{program('thermocline')} demo"
    if connect is not None:
        return f"\nTo stay and look around:  {demo} --trino --keep"
    return f"""
To stay and look around:  {demo} --keep
The same with Trino beside it (820 MB to fetch, once):  {demo} --trino"""


def _stay(site: Site, stage: Stage, clock: Clock) -> None:
    stack = site.stack
    stage.say(_how_to_go_on(site))
    with suppress(KeyboardInterrupt):
        while True:
            stack.check()
            clock.sleep(WATCH_SECONDS)


def _how_to_go_on(site: Site) -> str:
    stack = site.stack
    command = f"{program('thermocline')} --config {path_typed(stack.config_path)}"
    in_trino = how_to_ask(stack, command, TABLE, site.table_in_trino) if stack.trino else ""
    return f"""\
It stays up until Ctrl-C, at {stack.url} (described at {stack.url}/docs):

  curl '{stack.url}/v1/tables/{TABLE}/rows?app_id=7&user_id=ada'
  {command} lookup {TABLE} app_id=7 user_id=ada
  {command} extract {TABLE} -o {TABLE}.parquet
  {command} status
{in_trino}"""


def _all_agree(checks: Mapping[str, Check]) -> bool:
    return all(check.agrees for check in checks.values())


def _stage_for(options: DemoOptions, clock: Clock) -> Stage:
    console = Console(highlight=False, emoji=False, markup=False)
    if options.as_json:
        return Stage(clock)
    return Screen(clock, console) if console.is_terminal else Lines(clock)


@contextmanager
def _new_folder(options: DemoOptions, stage: Stage) -> Iterator[Path]:
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
            stage.say(f"Its configuration, logs and data stay in {folder}.")
        else:
            with undisturbed():
                shutil.rmtree(folder, ignore_errors=True)
