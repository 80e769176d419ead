"""The store of ready rows on a disk that is filled and freed; ``test_row_store`` runs it by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.torture.disks import Disk, enter_namespace
from thermocline.serving.cold.row_store import GENERATIONS, RowStore
from thermocline.serving.hot.environment import open_environment
from thermocline.serving.store.storage import STORAGE_ERRORS

NOT_PERMITTED: Final = 77
# Nothing; half of what LMDB begins a file with; a part of its table of readers; all but the rows; some rows.
LEFT_KB: Final = (0, 4, 8, 32, 64, 76, 120)
BYTES_MAX: Final = 1 << 24


def main(folder: Path) -> int:
    """Opens, writes and reads with hardly any room, and then with some; a failure has a name and an end."""
    if not enter_namespace():
        return NOT_PERMITTED
    disk = Disk(folder)
    for number, left_kb in enumerate(LEFT_KB):
        rows = folder / f"rows-{number}"
        disk.fill(left_kb)
        for _ in range(3):  # as the process that is started again
            print(f"{left_kb} kB:", *map(_written, [rows] * 2))
        disk.empty()
        assert _written(rows) == "written"
    disk.close(keep=False)
    return 0


def read_by_many(rows: Path) -> None:
    """As many readers as there may be: each writes into a table of them."""
    for path in rows.glob("*/1"):
        environment = open_environment(path, BYTES_MAX // GENERATIONS, is_writer=True, grows=True)
        for transaction in [environment.begin() for _ in range(1_000)]:
            transaction.abort()


def _written(rows: Path) -> str:
    store = RowStore(rows, "profiles", BYTES_MAX)
    try:
        store.flush()  # it takes up what others wrote
        read_by_many(rows)
        entries = [(f"{number}".encode(), bytes(40_000)) for number in range(4)]
        store.write(entries)
        assert store.get([key for key, _ in entries]) == [value for _, value in entries]
    except STORAGE_ERRORS as error:
        return type(error).__name__
    finally:
        store.close()
    return "written"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
