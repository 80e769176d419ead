"""Faults of all kinds against real processes, for as long as it is told; every answer is compared.

``make torture SECONDS=1800 SEED=1``. The same seed draws the same faults in the same order; when each one
strikes is up to the machine. Exit code 1 where anything differs: its folder is kept then. Ctrl-C ends it
early, with its report.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final

from tests.torture.disks import enter_namespace
from tests.torture.episode import Episode, Tally
from tests.torture.judge import Findings
from tests.torture.report import report
from thermocline.errors import ThermoclineError

# A table that is never compacted grows slow, and another one is of another kind.
EPISODE_SECONDS: Final = 300.0
# No new episode for less: it would end before its first round.
EPISODE_SECONDS_MIN: Final = 60.0


def torture(
    folder: Path, seed: int, seconds: float, rounds_max: int, missing: frozenset[str]
) -> tuple[Tally, Findings]:
    """Episodes until the time is over; folders of those with nothing to look at are removed."""
    tally, findings = Tally(), Findings()
    ends_at = time.monotonic() + seconds
    while tally.episodes == 0 or time.monotonic() + EPISODE_SECONDS_MIN < ends_at:
        number = tally.episodes + 1
        episode_ends_at = min(ends_at, time.monotonic() + EPISODE_SECONDS)
        own = folder / f"episode-{number}"
        found_before = findings.count
        print(f"episode {number}, seed {seed + number - 1}, in {own}", flush=True)

        def is_over(played: int, ends_at: float = episode_ends_at) -> bool:
            return played >= rounds_max or time.monotonic() > ends_at

        try:
            Episode(own, seed + number - 1, tally, findings, missing).run(is_over)
        except KeyboardInterrupt:
            print("told to stop: what was seen so far", flush=True)
            break
        except Exception as error:  # noqa: BLE001 -- what was found so far is to be reported
            traceback.print_exc()
            cause = f"; {error.cause}" if isinstance(error, ThermoclineError) else ""
            findings.add("the torture itself failed", f"{type(error).__name__}: {error}{cause}")
            break
        if findings.count == found_before:
            shutil.rmtree(own, ignore_errors=True)
        if tally.rounds >= rounds_max:
            break
    return tally, findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="at most so many, whatever the time")
    parser.add_argument("--report", type=Path, help="where the report is written, as Markdown")
    parser.add_argument("--folder", type=Path, help="where it works; else a temporary folder")
    parser.add_argument("--without", action="append", default=[], choices=["disk", "failpoints", "verify"])
    parser.add_argument("--lake", action="store_true", help="a table in an S3 store under a REST catalog")
    options = parser.parse_args()
    missing = set(options.without) | ({"disk", "sqlite"} if options.lake else {"lake"})
    if "disk" not in missing and not enter_namespace():
        missing.add("disk")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="thermocline-torture-"))
    print(f"seed {options.seed}, {options.seconds:g} s, in {folder}", flush=True)
    began = time.monotonic()
    tally, findings = torture(folder, options.seed, options.seconds, options.rounds, frozenset(missing))
    facts = {
        "seed": str(options.seed),
        "seconds": f"{time.monotonic() - began:.0f}",
        "the table": "in an S3 store under a REST catalog" if options.lake else "in a folder under SQLite",
        "full disks": "by failpoints alone" if "disk" in missing else "small file systems of their own",
    }
    text = report(tally, findings.lines, facts, findings.unforeseen)
    print(f"\n{text}", flush=True)
    if options.report:
        options.report.write_text(text)
    if findings.count:
        print(f"What there is to look at is kept in {folder}: the logs of all processes, topic and table.")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if findings.lines else 0


if __name__ == "__main__":
    sys.exit(main())
