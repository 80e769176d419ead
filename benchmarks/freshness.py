"""Freshness: from Kafka's acknowledgement to the first lookup that shows it, while ingest commits.

With Trino, also to the answer of each view that shows it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks._report import report


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--trino", action="store_true", help="measure the views, too")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    demo = [sys.executable, "-m", "thermocline", "demo", "--json", "--rate", str(options.rate)]
    demo += ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    if options.trino:
        demo.append("--trino")
    # The demo measures it beside traffic, commits and lookups, and proves its answers right; so does this.
    ended = subprocess.run(demo, stdout=subprocess.PIPE, check=True, text=True)
    document = json.loads(ended.stdout)
    figures = {
        "messages_per_second": document["traffic"]["messages_per_second"],
        "freshness_ms": document["freshness_ms"],
        "lookup_ms": document["lookup_ms"],
        "commits": len(document["commits"]),
        "agrees": document["agrees"],
    }
    if options.trino:
        figures["views"] = document["views"]
    report("freshness", options.seed, figures)


if __name__ == "__main__":
    main()
