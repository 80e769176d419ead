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

from thermocline.clock import Clock, SystemClock
from thermocline.embedded.demo.document import document_of
from thermocline.embedded.demo.examination import examine
from thermocline.embedded.demo.interrupts import as_keyboard_interrupt, undisturbed
from thermocline.embedded.demo.lines import Lines
from thermocline.embedded.demo.opening import open_site, running_stack
from thermocline.embedded.demo.options import DemoOptions
from thermocline.embedded.demo.scene import Scene
from thermocline.embedded.demo.screen import Screen
from thermocline.embedded.demo.stage import Stage
from thermocline.embedded.demo.traffic import Traffic
from thermocline.embedded.demo.verdict import Check
from thermocline.embedded.stack import TABLE, Stack
from thermocline.embedded.workload import Workload
from thermocline.errors import ExitCode, VerdictBad

FOLDER: Final = Path(".thermocline") / "demo"
WATCH_SECONDS: Final = 0.5
OPENING: Final = "Thermocline: a Kafka topic, an Iceberg table that lags behind it, and one answer from both."


def run(options: DemoOptions) -> int:
    """Plays the demo; `ExitCode.DONE` when every answer agrees with the oracle.

    Raises:
        VerdictBad: some answer does not; the folder is kept then.
        EngineFailed: a process ended; the folder with its log is kept.
        KeyboardInterrupt: Ctrl-C or SIGTERM; nothing is left.
    """
    clock = SystemClock()
    with as_keyboard_interrupt(), _stage_for(options, clock) as stage, _new_folder(options, stage) as folder:
        stage.say(f"\n{OPENING}\n", "bold")
        with running_stack(folder, stage) as stack:
            scene, checks = _play(options, stack, stage, clock)
            _conclude(stage, scene, checks)
            if options.as_json:
                document = document_of(options, stage.tasks, scene, checks, stack.url)
                print(json.dumps(document, indent=2, ensure_ascii=False), flush=True)
            if options.keep:
                _stay(stack, stage, clock)
        if not _all_agree(checks):
            bad = (f"{name}: {check.outcome}" for name, check in checks.items() if not check.agrees)
            raise VerdictBad(detail="; ".join(bad))
        if not options.keep:
            stage.say("\nTo stay and look around:  thermocline demo --keep")
    return ExitCode.DONE


def _play(options: DemoOptions, stack: Stack, stage: Stage, clock: Clock) -> tuple[Scene, dict[str, Check]]:
    workload = Workload(options.seed, options.user_count, options.keys_per_user)
    rows = list(workload.load())
    site = open_site(stack, stage, rows, clock)
    traffic = Traffic(options, site, workload, sorted({event.row[:2] for event in rows}))
    traffic.run(stack.check, stage.show)
    stage.say("\nThe traffic has stopped.\n", "bold")
    return traffic.scene(), examine(site, traffic, stage)


def _conclude(stage: Stage, scene: Scene, checks: Mapping[str, Check]) -> None:
    if not _all_agree(checks):
        stage.say("\n✗ Answers differ from the oracle: that is a bug.\n", "bold red")
        return
    fresh = scene.freshness
    stage.say("\n✓ Lookups and extract agree with the oracle, key by key.", "bold green")
    figures = f"after {fresh.p50_ms:.0f} ms, p99 {fresh.p99_ms:.0f} ms"
    stage.say(f"  What Kafka had acknowledged was in a lookup {figures}.\n")


def _stay(stack: Stack, stage: Stage, clock: Clock) -> None:
    stage.say(_how_to_go_on(stack))
    with suppress(KeyboardInterrupt):
        while True:
            stack.check()
            clock.sleep(WATCH_SECONDS)


def _how_to_go_on(stack: Stack) -> str:
    config = stack.config_path
    with suppress(ValueError):
        config = config.relative_to(Path.cwd())
    command = f"thermocline --config {config}"
    return f"""\
It stays up until Ctrl-C, at {stack.url} (described at {stack.url}/docs):

  curl '{stack.url}/v1/tables/{TABLE}/rows?app_id=7&user_id=ada'
  {command} lookup {TABLE} app_id=7 user_id=ada
  {command} extract {TABLE} -o {TABLE}.parquet
  {command} status
"""


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
