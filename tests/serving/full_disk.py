"""A tailer on a disk that is filled and freed, as a process of its own: ``test_tailer_storage`` runs it."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.serving.hot_log import DEFINITION, PLACES, START, check, raw_key, raw_value
from tests.serving.tail.test_tailer import FakeTail
from tests.serving.tail.test_tailer_steps import Stepped
from tests.torture.disks import Disk, enter_namespace
from thermocline.kafka.facts import RecordChunk
from thermocline.rules.seam import Seam
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.view import HotReader
from thermocline.serving.store.layout import HOT

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError

NOT_PERMITTED: Final = 77
# Nothing; a status, and no page of a hot tier; less than a seal needs; more than that.
LEFT_KB: Final = (0, 64, 900, 4_000)


def poll(tail: FakeTail, timeout_seconds: float) -> list[RecordChunk]:
    """As `FakeTail.poll`, with the records' own keys and values."""
    chunks = []
    for place, records in tail.kafka.log.partitions.items():
        new = [record for record in records if record.offset >= tail.at[place]]
        tail.at[place] = tail.kafka.log.ends[place]
        if new:
            offsets, times = [one.offset for one in new], [one.timestamp_ms for one in new]
            keys: list[bytes | None] = [raw_key(one) for one in new]
            chunks.append(RecordChunk(*place, keys, [raw_value(one) for one in new], offsets, times))
    return chunks


def main(folder: Path) -> int:
    """Fills the disk in several ways, with a pin that waits for a seal; what a reader sees is right."""
    if not enter_namespace():
        return NOT_PERMITTED
    FakeTail.poll = poll  # type: ignore[assignment,method-assign]
    disk = Disk(folder)
    stepped = Stepped(folder)
    stepped.turn(2)
    reader = HotReader.open(folder / HOT, DEFINITION)
    for number, left_kb in enumerate(LEFT_KB, start=1):
        for place in PLACES:
            stepped.kafka.log.add(place, (1, f"u{number}", "k"), f"v{number}", number)
        stepped.turn(2)
        problem = _on_a_full_disk(stepped, disk, left_kb, folder)
        _check(stepped, reader)
        disk.empty()
        status = stepped.turn(5)
        assert status["problem"] is None, status
        assert _check(stepped, reader) == Seam(stepped.kafka.log.ends), status
        print(f"{left_kb} kB:", "went on" if problem is None else f"stood still: {problem.what}")
    stepped.tailer.close()
    disk.close(keep=False)
    return 0


def _on_a_full_disk(stepped: Stepped, disk: Disk, left_kb: int, folder: Path) -> ThermoclineError | None:
    """Records come, and another process may start; what went wrong."""
    pin = hold(folder / HOT, "profiles", 1, START, stepped.clock)
    disk.fill(left_kb)
    stepped.kafka.log.add(PLACES[0], (1, "u", "k"), f"{left_kb}", 0)
    stepped.turn(4)
    problem = stepped.tailer._problem
    stepped.restart()
    stepped.turn(4)
    with suppress(OSError):
        pin.release()
    return problem


def _check(stepped: Stepped, reader: HotReader) -> Seam:
    reader.refresh()
    with reader.view() as view:
        check(view, stepped.kafka.log, view.start, random.Random(0))
        return view.end


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
