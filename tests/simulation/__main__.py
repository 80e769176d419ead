"""``python -m tests.simulation``: histories of ingest and serving, at random, against a plain replay.

--histories N --seed S --processes P    run many; exit 1 where one breaks a promise
--seed S --history K                    run one; where it fails, shrink it and print what is left
--maintained                            only such with maintenance, which else are one of twelve
--changing                              only such whose columns change, which else are one of ten
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
    options.add_argument("--maintained", action="store_const", const=True)
    options.add_argument("--changing", action="store_const", const=True)
    chosen = options.parse_args()
    kinds = (chosen.maintained, chosen.changing)
    if chosen.history is not None:
        print(explained(chosen.seed, chosen.history, *kinds))
        return 0
    print(f"seed {chosen.seed}", flush=True)
    report = run_many(chosen.seed, chosen.histories, chosen.processes, True, *kinds)
    print("\n".join(report.lines()))
    for failure in report.failures[:3]:
        shrunk = explained(failure.seed, failure.number, *kinds)
        print(f"\nshrunk, history {failure.number}:\n{shrunk}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
