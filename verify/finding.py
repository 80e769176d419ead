"""A difference between what the log says and what a table or a read path shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from thermocline.rules.keys import named_columns

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["CODES", "Finding", "Key", "key_of"]

Key = dict[str, object]
"""The columns that identify a row, by name, as natural Python values."""

CODES: Final[dict[str, str]] = {
    # Rows of the table against the log.
    "delete-not-remembered": "a delete that late records must lose against is not in the table's files",
    "row-missing": "the log's last record of the key is in the seam, and the table has no row of it",
    "row-extra": "the table has a row that the log deletes, or that no record of the log wrote",
    "row-stale": "the table has an older record of the key than the last one that it read",
    "row-differs": "a row's columns are not those of the record that it says it comes from",
    "row-beyond-seam": "a row comes from a record at or beyond the seam of its snapshot",
    "key-live-twice": "two live rows of the table have the same key",
    # ReadPaths against the log, each at the read point that it names.
    "extract-differs": "an extract's row is not the row of the table overlaid with the log",
    "lookup-differs": "a lookup's rows are not those of the log at the read point that it names",
    "hot-differs": "the hot tier's record of a key is not the last one of the log that it holds",
    # The structure of the table, and its history.
    "two-deletes-for-a-file": "a data file has more than one set of deleted positions",
    "file-missing": "a file that the snapshot refers to is not in the store",
    "deletes-lost": "positions that an earlier snapshot deleted are live again",
    "seam-not-joined": "a snapshot does not begin where the one before it ended",
    "seam-copy-differs": "the table's copy of the seam is not that of its snapshot",
    "accounting-open": "the records that a snapshot read are not those that it accounts for",
    "rows-not-accounted": "the rows that a snapshot added and deleted are not those that it accounts for",
    "schema-foreign": "another program changed the columns: other engines find other ones",
    "snapshot-foreign": "another writer made a snapshot of the table's history",
    "summary-unreadable": "a snapshot's summary lacks what every one of ours says, or says it unreadably",
    "batch-repeated": "two snapshots carry the same batch",
    "epoch-back": "a snapshot has a lower epoch than one before it",
    "definition-version-differs": "the snapshot was made with another version of the table's definition",
    "deletes-foreign": "the snapshot holds deletes of a kind that only other writers make",
    "deletes-unreadable": "deleted positions can't be read, or are not those that the manifest says",
    "file-unreadable": "a file of the snapshot can't be read",
    "file-differs": "a file is not as large, or has not as many rows, as the manifest says",
    "file-unsorted": "a file's rows or its index are not in the order of keys that lookups rely on",
    "row-misplaced": "a row stands in another bucket than that of its key",
    "row-behind-seam": "a row comes from a record from before its snapshot's batch: an old value",
    "quarantine-incomplete": "records that a snapshot counts as quarantined are not in the quarantine",
}
"""Every kind of difference that there is, with what it means."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference.

    ``code`` is one of `CODES`; ``what`` is one sentence with the facts; ``key`` is the row's, where it is
    about a row; ``history`` are lines about the key or the file, oldest first.
    """

    code: str
    what: str
    key: Key | None = None
    history: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses a code that nobody could look up."""
        assert self.code in CODES, f"{self.code} is no kind of finding"

    def to_dict(self) -> dict[str, Any]:
        """The form in JSON; what JSON has no form for is left to its writer."""
        return asdict(self)


def key_of(definition: LiveTable, key: bytes) -> Key:
    """The columns that identify a row, by name, from its key's bytes."""
    return named_columns(definition, key)
