"""Histories at random: what happens, how often, and in which surroundings.

Some things only show when a few steps come in the right order, which chance alone brings about too seldom:
scenes are such orders, with chance in what they leave open and in what comes between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random

from tests.simulation import column_steps, serving_steps, upkeep_steps
from tests.simulation.faults import Answer, Fault, Kind, Trouble
from tests.simulation.history import History
from tests.simulation.log_steps import (
    AddPartition,
    Advance,
    ClockJump,
    ClusterDown,
    Compact,
    CreateTopic,
    DeleteTopic,
    EndTransaction,
    LoseEnd,
    Produce,
    ReplaceCluster,
    ReplaceTopic,
    Trim,
)
from tests.simulation.table_steps import (
    Append,
    DeliverLate,
    Expire,
    Ingest,
    Kill,
    Resume,
    Rewrite,
    Rollback,
    SetProperty,
    Tag,
)
from tests.simulation.upkeep_steps import Turn
from tests.simulation.world import BAD, DELETE, TOUCH, UPSERT, Step, Surroundings

# The steps of ingest in a history; where it is served, as many of serving come between.
STEPS = 30
# The share of histories that have serving, too.
SERVED = 0.5
# Of so many histories, one merges the files of its buckets, so that few have deletes.
MERGED_EVERY = 3
# How often something happens to serving after a step of ingest; its scenes have two steps on average.
SERVING_SCENES = 0.4
# Of so many histories, one has maintenance; of these, few have topics that are compacted, since days pass.
MAINTAINED_EVERY = 12
COMPACTED_TOO = 0.3
# The share of histories with partial updates, none of which has topics that are compacted.
PARTIAL = 0.2
TOUCHES = 0.4
# The share of histories with topics that come and go, and how often one does between two steps.
ROTATING = 0.12
ROTATIONS = 0.3
# The share of histories whose table has the records of one topic alone.
ROUTED = 0.2
# The share of histories whose columns change; none has partial updates.
CHANGING = 0.12
# How often maintenance does something after a step; its scenes have four steps on average.
UPKEEP_SCENES = 0.5
# A batch makes some twenty requests, and fifteen more where the table is taken first.
_EDGES = 36
# Where much depends on what comes before and after.
_ONLY = ("", "", "", "", "publish", "metadata load", "log read", "store write", "store delete", "store list")
_KINDS: tuple[Kind, ...] = ("lost", "applied", "raced", "late", "late", "late-race")

Scene = Callable[[Random], list[Step]]
Weighted = tuple[float, Scene]


def history_of(
    seed: int,
    number: int,
    is_served: bool | None = None,
    is_maintained: bool | None = None,
    is_rotating: bool | None = None,
    is_changing: bool | None = None,
) -> History:
    """The history of that number: the same for the same seed.

    ``is_served``, ``is_maintained``, ``is_rotating`` and ``is_changing``: by chance, unless it is said.
    """
    choose = Random(f"{seed}/{number}")
    around = Surroundings(
        partitions=(choose.choice([1, 1, 2]), choose.choice([1, 1, 2])),
        is_compacted=choose.random() < 0.3,
        is_append_time=choose.random() < 0.3,
        wanders=choose.random() < 0.2,
        is_arrow=choose.random() < 0.03,
        is_merging=number % MERGED_EVERY == 0,
        records_max=choose.choice([2, 5, 100, 100]),
        skew_ms_max=choose.choice([0, 0, 0, 0, 20_000, 7_200_000]),
        is_served=(choose.random() < SERVED) if is_served is None else is_served,
    )
    of_upkeep = Random(f"{seed}/{number}/upkeep")  # so that it changes nothing of the others
    if number % MAINTAINED_EVERY == 1 if is_maintained is None else is_maintained:
        is_compacted = around.is_compacted and of_upkeep.random() < COMPACTED_TOO
        around = replace(around, is_maintained=True, is_compacted=is_compacted)
    # Apart, so that it changes nothing of the others.
    if not around.is_compacted and Random(f"{seed}/{number}/partial").random() < PARTIAL:
        around = replace(around, is_partial=True)
    of_topics = Random(f"{seed}/{number}/topics")
    if of_topics.random() < ROTATING if is_rotating is None else is_rotating:
        around = replace(around, is_rotating=True, wanders=True)
    if Random(f"{seed}/{number}/routed").random() < ROUTED:
        around = replace(around, takes="a")
    of_columns = Random(f"{seed}/{number}/columns")
    if (of_columns.random() < CHANGING and not around.is_partial) if is_changing is None else is_changing:
        around = replace(around, is_changing=True, is_partial=False)
    steps = _steps(around, choose)
    if around.is_rotating:
        steps = [one for step in steps for one in (*_rotated(of_topics), step)]
    if around.is_changing:
        steps = [column_steps.with_fields(step, of_columns) for step in steps]
        steps = [one for step in steps for one in (*column_steps.random_scene(of_columns), step)]
    if around.is_maintained:
        steps = [one for step in steps for one in _maintained(step, of_upkeep)]
    if around.is_served:
        steps = [one for step in steps for one in (step, *_served(choose))]
    return History(around, tuple(steps))


def _steps(around: Surroundings, choose: Random) -> list[Step]:
    """Those that every history may have."""
    scenes = [*_usual(around), *_rare(choose), *_scenes(around)]
    edges = list(accumulate(weight for weight, _ in scenes))
    steps: list[Step] = []
    while len(steps) < STEPS:
        (_, scene), *_ = choose.choices(scenes, cum_weights=edges)
        steps += scene(choose)
    return steps[:STEPS]


def _maintained(step: Step, choose: Random) -> list[Step]:
    """A step of the others, which leave expiry to maintenance, and what maintenance does after it."""
    steps = [Turn(0) if isinstance(step, Expire) else step]
    return steps + upkeep_steps.random_scene(choose) if choose.random() < UPKEEP_SCENES else steps


def _rotated(choose: Random) -> list[Step]:
    """What becomes of topics that a pattern finds, before a step of the others."""
    if choose.random() >= ROTATIONS:
        return []
    number, owner = choose.randrange(4), choose.randrange(2)
    look: list[Step] = [Advance(choose.choice([11, 11, 60, 600])), Ingest(owner)]
    create = CreateTopic(number, choose.choice([1, 1, 2]))
    drained: list[Step] = [Ingest(0), DeleteTopic(number, is_drained=True)]
    scenes: list[list[Step]] = [
        [create],
        [create, *look],
        [create, *look, Ingest(owner)],
        [DeleteTopic(number, choose.random() < 0.7)],
        [*look, *drained, *look],
        [*look, *drained, create],
        [*look, *drained, Kill(0), *look, Resume(owner)],
        [*look, DeleteTopic(number), *look, Resume(owner), Ingest(owner)],
        [DeleteTopic(number), Kill(0), Kill(1), Advance(7200), Ingest(0), Resume(0), Ingest(0)],
    ]
    return choose.choice(scenes)


def _served(choose: Random) -> list[Step]:
    """What serving does between two steps of the others."""
    return serving_steps.random_scene(choose) if choose.random() < SERVING_SCENES else []


def _usual(around: Surroundings) -> list[Weighted]:
    found: list[Weighted] = [
        (8, lambda c: [_produce(c, around)]),
        (8, lambda c: [_ingest(c)]),
        (1, lambda c: [EndTransaction(c.randrange(2), c.random() < 0.7)]),
        (1, lambda c: [Kill(c.randrange(3))]),
        (1, lambda c: [_resume(c)]),
        (1, lambda c: [DeliverLate(c.randrange(3))]),
        (0.5, lambda c: [Trim(c.randrange(9), c.randrange(1, 6))]),
        (0.3, lambda c: [SetProperty(c.randrange(99))]),
        (0.2, lambda c: [Tag(c.choice("xy"))]),
        (0.5, lambda c: [Advance(c.choice([1, 60, 600]))]),
        (0.2, lambda c: [ClusterDown(False), _ingest(c), ClusterDown(True)]),
    ]
    if around.is_compacted:
        found.append((2, lambda c: [Compact(c.randrange(9), c.randrange(3), c.random() < 0.5)]))
    if around.wanders:
        found.append((0.5, lambda c: [AddPartition(c.randrange(2))]))
    if around.skew_ms_max:
        found.append((1.5, lambda c: [ClockJump(f"owner {c.randrange(3)}", c.uniform(-1, 1))]))
    return found


def _rare(choose: Random) -> list[Weighted]:
    """What may happen in this history: few of them in each, or one would hide the other."""
    rare: list[Scene] = [
        lambda c: [Trim(c.randrange(9), c.randrange(1, 6), is_early=True), _ingest(c), _resume(c)],
        lambda c: [LoseEnd(c.randrange(9), c.randrange(1, 4)), _ingest(c), _resume(c)],
        lambda c: [ReplaceTopic(c.randrange(9)), _ingest(c), _resume(c)],
        lambda c: [ReplaceCluster(), _ingest(c), _resume(c)],
        lambda c: [Append(c.randrange(99)), _ingest(c), _resume(c)],
        lambda c: [Rewrite(), _ingest(c), _resume(c)],
        lambda c: [Rollback(c.randrange(3)), _ingest(c), _resume(c)],
        lambda c: [Expire(c.randrange(1, 4))],
        lambda c: [Advance(c.choice([1800, 7200, 90_000]))],
    ]
    return [(1.0, scene) for scene in choose.sample(rare, choose.choice([0, 1, 1, 2, 3]))]


def _scenes(around: Surroundings) -> list[Weighted]:
    found: list[Weighted] = [(0.5, lambda c: _zombie(c, around)), (0.5, lambda c: _unknown(c, around))]
    found.append((0.1, lambda c: _forgotten_note(c, around)))
    if around.is_compacted:
        found.append((0.5, lambda c: _forgotten_tombstone(c, around)))
    return found


def _forgotten_note(choose: Random, around: Surroundings) -> list[Step]:
    """An unknown commit landed, its note was not read, and its snapshot is gone when it is."""
    steps: list[Step] = [Ingest(0), _produce(choose, around), Ingest(0, None, Answer("late")), DeliverLate(0)]
    unread = Ingest(1, Fault("error", 0, only="store list"))
    steps += [unread, _produce(choose, around), Ingest(1), Expire(choose.choice([1, 1, 2])), Kill(1)]
    return [*steps, Ingest(2)]


def _zombie(choose: Random, around: Surroundings) -> list[Step]:
    """An owner stops in the middle of a batch, another one takes the table, and the first one goes on."""
    first, second = choose.sample(range(3), 2)
    pause = Fault("pause", choose.randrange(_EDGES), choose.randrange(1, 4))
    between: list[Step] = [Ingest(second), _produce(choose, around), Ingest(second, None, _answer(choose))]
    return [_produce(choose, around), Ingest(first, pause, _answer(choose)), *between, Ingest(first)]


def _unknown(choose: Random, around: Surroundings) -> list[Step]:
    """A running owner's batch is published, and nobody knows whether it is; then somebody else comes."""
    first, second = choose.sample(range(3), 2)
    steps: list[Step] = [Ingest(first), _produce(choose, around)]
    steps.append(Ingest(first, None, Answer(choose.choice(_KINDS))))
    steps += choose.sample([DeliverLate(0), Expire(1), SetProperty(1), _produce(choose, around)], 2)
    return [*steps, Ingest(second, _fault(choose)), DeliverLate(0), Ingest(second)]


def _forgotten_tombstone(choose: Random, around: Surroundings) -> list[Step]:
    """A row is deleted, and nobody reads that for longer than the topic keeps it."""
    key = choose.randrange(12)
    upsert, delete = Produce(((key, key, UPSERT),)), Produce(((key, key, DELETE),))
    before = choose.choice([Produce(((key, key, UPSERT),) * 4), _produce(choose, around)])
    waiting: list[Step] = [Advance(choose.choice([1800, 3700, 3700, 20_000]))]
    if choose.random() < 0.5:
        waiting = [Advance(1800), Ingest(0), Advance(1900)]
    compact = Compact(key, choose.randrange(2), drops=True)
    steps: list[Step] = [upsert, Ingest(0), before, delete, compact, *waiting, compact]
    return [*steps, _ingest(choose), _resume(choose), Ingest(0)]


def _produce(choose: Random, around: Surroundings) -> Produce:
    records = []
    for _ in range(choose.choice([1, 1, 2, 3, 5])):
        key = choose.choice([choose.randrange(3), choose.randrange(12)])
        place = choose.randrange(12) if around.wanders else key
        what = choose.choices([UPSERT, DELETE, BAD], cum_weights=[12, 17, 18])[0]
        is_touch = around.is_partial and what == UPSERT and choose.random() < TOUCHES
        records.append((place, key, TOUCH if is_touch else what))
    return Produce(tuple(records), choose.choice(_SLOTS))


_SLOTS: Sequence[int | None] = (None,) * 8 + (0, 1)


def _ingest(choose: Random) -> Ingest:
    return Ingest(choose.choice([0, 0, 0, 0, 1, 1, 2]), _fault(choose), _answer(choose))


def _resume(choose: Random) -> Resume:
    to = choose.choice(["earliest", "latest"])
    return Resume(choose.choice([0, 0, 0, 1, 2]), to, _fault(choose), _answer(choose))


def _fault(choose: Random) -> Fault | None:
    if choose.random() < 0.6:
        return None
    kinds: list[Trouble] = ["crash", "pause", "error"]
    kind, only = choose.choice(kinds), choose.choice(_ONLY)
    at = choose.choice([0, 0, 1]) if only else choose.randrange(_EDGES)
    return Fault(kind, at, choose.randrange(1, 6) if kind == "pause" else 0, only)


def _answer(choose: Random) -> Answer | None:
    return None if choose.random() < 0.8 else Answer(choose.choice(_KINDS), choose.choice([0, 0, 0, 1]))
