"""The structure of a table: its history, its files, its rows, as far as they are judged without the log.

`seam_history` asks the summaries of all snapshots that the table still holds, `file_history` their files,
`rewrites` the rows of those that others made and ingest took over, `current_files` and `file_scan` the files
and the rows of the current snapshot, `quarantined` the companion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from thermocline.errors import ThermoclineError
from thermocline.iceberg.catalog import load_table
from thermocline.iceberg.files import spec_buckets
from thermocline.iceberg.foreign_schema import schema_differences
from thermocline.iceberg.lineage import lineage
from thermocline.verify.current_files import deletes_findings, listing_findings, stored_files
from thermocline.verify.file_history import FileHistory
from thermocline.verify.file_scan import file_findings
from thermocline.verify.finding import Finding
from thermocline.verify.origins import Origins
from thermocline.verify.quarantined import quarantine_findings
from thermocline.verify.rewrites import rewrite_findings, taken_over
from thermocline.verify.seam_history import name_of, seam_findings
from thermocline.verify.snapshot_files import SnapshotFiles, walk

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.rules.definition import LiveTable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

SNAPSHOTS: Final = "history"
ROWS: Final = "files"


def structure_findings(table: Table, definition: LiveTable, progress: Progress) -> Iterator[Finding]:
    """What is wrong with the table's current snapshot and with its history, as it is found.

    ``table`` is as it was loaded; what is committed meanwhile does not matter. In memory is the list of the
    files of one snapshot.

    Raises:
        OSError: the store can't be asked.
    """
    for difference in schema_differences(definition, table.schema()):
        yield Finding("schema-foreign", f"another program changed the columns: {difference}")
    links = lineage(table)
    rewrites, is_held = taken_over(links), _is_held(table)
    yield from seam_findings(links, table.properties, definition, rewrites)
    yield from rewrite_findings(table, definition, links, is_held)
    history = FileHistory(table.io, definition.has_key, is_held)
    step = None
    for done, step in enumerate(walk(table.io, links), start=1):
        yield from history.findings(step)
        progress(SNAPSHOTS, done, len(links))
    if step is not None:
        yield from _current(table, definition, step, Origins.of(links, table.properties, rewrites), progress)
    yield from quarantine_findings(table, links)


def _current(
    table: Table, definition: LiveTable, step: SnapshotFiles, origins: Origins, progress: Progress
) -> Iterator[Finding]:
    yield from listing_findings(step.live.values(), name_of(step.link))
    files = stored_files(step.live.values())
    yield from deletes_findings(table.io, files)
    total, done = sum(file.listed.rows for file in files), 0

    def rows_read(count: int) -> None:
        nonlocal done
        done += count
        progress(ROWS, done, total)

    specs = spec_buckets(table)
    for file in files:
        part = file.listed.part(specs)
        yield from file_findings(table.io, definition, file, part, origins, rows_read)


def _is_held(table: Table) -> Callable[[int], bool]:
    """Whether the table holds a snapshot by now: the files of one that was expired meanwhile may be gone."""

    def is_held(snapshot_id: int) -> bool:
        identifier = ".".join(table.name())
        try:
            return load_table(table.catalog, identifier, identifier).snapshot_by_id(snapshot_id) is not None
        except ThermoclineError:
            return True  # nobody says that it is expired

    return is_held
