"""What a torture did and found, as a table in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.torture.episode import Tally

DIFFERENCES_SHOWN = 20


def report(
    tally: Tally, differences: Sequence[str], facts: Mapping[str, str], unforeseen: Counter[str] | None = None
) -> str:
    """The whole report. ``facts`` are of the run: its seed, its seconds, what it had not."""
    heading = (
        f"{tally.faults.total()} faults in {tally.rounds} rounds and {tally.episodes} episodes, "
        f"**{len(differences) or 'no'} difference{'s' if len(differences) != 1 else ''}**."
    )
    lines = [
        heading,
        "",
        *_table(("what", "how much"), _figures(tally, facts)),
        "",
        *_table(("fault", "times"), _sorted(tally.faults)),
    ]
    if tally.points:
        lines += ["", *_table(("failpoint", "times"), _sorted(tally.points))]
    if tally.missed:
        missed = ", ".join(f"{kind} {times}" for kind, times in _sorted(tally.missed))
        lines += ["", f"Found nothing to break, and not counted: {missed}."]
    lines += ["", *_table(("how processes ended", "times"), _sorted(tally.exits))]
    if unforeseen:
        met = ", ".join(f"{kind} {times}" for kind, times in _sorted(unforeseen))
        lines += ["", f"While disks or files failed on purpose, errors without a name of their own: {met}."]
    if differences:
        lines += ["", "Differences:", "", *(f"- {line}" for line in differences[:DIFFERENCES_SHOWN])]
    return "\n".join(lines) + "\n"


def _figures(tally: Tally, facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from facts.items()
    yield "records", f"{tally.records:,}"
    yield "batches committed", f"{tally.commits:,}"
    yield "times that an owner took the table", f"{tally.takeovers:,}"
    yield "processes started", ", ".join(f"{role} {times}" for role, times in sorted(tally.starts.items()))
    yield "maintenance", ", ".join(f"{what} {times:,}" for what, times in sorted(tally.upkeep.items()))
    yield "answers compared", ", ".join(f"{read_path} {n:,}" for read_path, n in sorted(tally.judged.items()))
    yield "refused, and asked again", ", ".join(f"{code} {n:,}" for code, n in sorted(tally.refused.items()))
    yield "rows of the table compared", f"{tally.rows_compared:,}"
    yield "`thermocline verify`", ", ".join(f"{how} {n}" for how, n in sorted(tally.verified.items()))


def _sorted(counts: Counter[str]) -> list[tuple[str, str]]:
    return [
        (name, str(times)) for name, times in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _table(head: tuple[str, str], rows: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {head[0]} | {head[1]} |"
    yield "| --- | --- |"
    yield from (f"| {name} | {value} |" for name, value in rows)
