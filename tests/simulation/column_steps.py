"""Steps in which the table's columns change, by the command and by what records have; and scenes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final, Literal

from tests.simulation.columns import BY_HAND
from tests.simulation.faults import Answer, Fault, Kind, Trouble
from tests.simulation.log_steps import Produce
from tests.simulation.owners import Process
from tests.simulation.records import FIELDS, IDENTIFIER, NAME, PLAIN
from tests.simulation.table_steps import Ingest
from tests.simulation.world import SENT, UPSERT
from thermocline.iceberg.catalog import definition_of
from thermocline.rules.column_types import ColumnType
from thermocline.rules.definition import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.world import Step, World

What = Literal["add", "widen", "drop", "rename", "swap", "order"]

NAMES: Final = ("y0", "x0", "y1", "x1", "x2")
"""What columns are renamed to; some as fields of records are called."""
INT, LONG = (ColumnType.parse(name) for name in ("int", "long"))


@dataclass(frozen=True, slots=True)
class Alter:
    """Somebody changes a column in the file, and runs the command that alters the table.

    "swap" is a rename, and a new column under the old name, at once.
    """

    what: What
    which: int
    fault: Fault | None = None
    answer: Answer | None = None

    def run(self, world: World) -> None:
        """By the columns as they are before the command runs; nothing where it makes no sense."""
        if not world.around.is_changing:
            return
        table = definition_of(world.catalog.look(IDENTIFIER), NAME)  # type: ignore[arg-type]
        others = [one for one in table.columns if one.name not in PLAIN]
        wanted = _altered(others, self.what, self.which)
        if wanted is None:
            return
        plain = [one for one in table.columns if one.name in PLAIN]
        file = replace(table, columns=(*plain, *wanted))
        drop = [one.name for one in others if one not in wanted] if self.what == "drop" else []
        process = Process.of(world, BY_HAND)

        def alter() -> None:
            world.counts[f"alter {self.what}: {process.alter(file, drop)}"] += 1

        world.process(process.name, self.fault, alter, self.answer)


def _altered(columns: Sequence[Column], what: What, which: int) -> list[Column] | None:
    """The columns as they are wanted."""
    names = {one.name for one in columns}
    if what == "add":
        name = f"x{which % FIELDS}"
        new = Column(name, INT if which % 2 else LONG, 0)
        return None if name in names else [*columns, new][:: -1 if which % 5 == 0 else 1]
    at = which % len(columns) if columns else 0
    if not columns or (what == "order" and len(columns) == 1):
        return None
    one = columns[at]
    match what:
        case "order":
            return list(reversed(columns))
        case "drop":
            return [*columns[:at], *columns[at + 1 :]]
        case "widen":
            return [*columns[:at], replace(one, type=LONG), *columns[at + 1 :]]
    name = NAMES[which % len(NAMES)]
    if name in names:
        return None
    path = () if one.read_from == (name,) else one.read_from
    renamed = replace(one, name=name, path=path, renamed_from=one.name)
    again = [Column(one.name, INT, 0)] if what == "swap" else []
    return [*columns[:at], renamed, *columns[at + 1 :], *again]


# An alteration makes some twelve requests, and most of them as others do.
_EDGES: Final = 14
_ONLY: Final = ("", "", "publish", "metadata load", "catalog load")
_KINDS: Final[tuple[Kind, ...]] = ("lost", "applied", "raced", "late", "late-race")
_TROUBLES: Final[tuple[Trouble, ...]] = ("crash", "pause", "pause", "error")
# The share of records with other fields, and how often a step comes after an alteration.
_SENT: Final = 0.8
_ALTERATIONS: Final = 0.3
_WEIGHTS: Final[dict[What, float]] = {"add": 2, "drop": 2, "widen": 1, "rename": 1, "swap": 0.5, "order": 0.5}
_EDGES_OF_WEIGHTS: Final = list(accumulate(_WEIGHTS.values()))


def with_fields(step: Step, choose: Random) -> Step:
    """The same, whose records have other fields, too."""
    if not isinstance(step, Produce):
        return step
    records = tuple(
        (place, key, SENT + _fields(choose) if what == UPSERT and choose.random() < _SENT else what)
        for place, key, what in step.records
    )
    return replace(step, records=records)


def random_scene(choose: Random) -> list[Step]:
    """What becomes of the columns before a step of the others: mostly nothing."""
    if choose.random() >= _ALTERATIONS:
        return []
    alter, owner = _alter(choose), choose.randrange(2)
    scenes: list[list[Step]] = [
        [alter],
        [alter],
        [alter, Ingest(owner)],
        [Ingest(owner), alter, Ingest(owner), _alter(choose)],
        [alter, _alter(choose), Ingest(owner)],
    ]
    return choose.choice(scenes)


def _alter(choose: Random) -> Alter:
    (what,) = choose.choices(list(_WEIGHTS), cum_weights=_EDGES_OF_WEIGHTS)
    answer = None if choose.random() < 0.8 else Answer(choose.choice(_KINDS), choose.choice([0, 1, 1]))
    return Alter(what, choose.randrange(30), _fault(choose), answer)


def _fault(choose: Random) -> Fault | None:
    if choose.random() < 0.75:
        return None
    kind, only = choose.choice(_TROUBLES), choose.choice(_ONLY)
    at = choose.choice([0, 0, 1]) if only else choose.randrange(_EDGES)
    return Fault(kind, at, choose.randrange(1, 5) if kind == "pause" else 0, only)


def _fields(choose: Random) -> int:
    kinds = choose.choices(range(4), weights=[4, 4, 1, 1], k=FIELDS)
    return sum(kind << 2 * number for number, kind in enumerate(kinds))
