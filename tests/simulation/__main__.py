"""``python -m tests.simulation``: histories of ingest and serving, at random, against a plain replay.

--histories N --seed S --processes P    run many; exit 1 where one breaks a promise
--seed S --history K                    run one; where it fails, shrink it and print what is left
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.simulation.runner import explained, run_many


def main() -> int:
    """The exit code."""
    options = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    options.add_argument("--histories", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--history", type=int)
    chosen = options.parse_args()
    if chosen.history is not None:
        print(explained(chosen.seed, chosen.history))
        return 0
    print(f"seed {chosen.seed}", flush=True)
    report = run_many(chosen.seed, chosen.histories, chosen.processes, has_progress=True)
    print("\n".join(report.lines()))
    for failure in report.failures[:3]:
        print(f"\nshrunk, history {failure.number}:\n{explained(failure.seed, failure.number)}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
