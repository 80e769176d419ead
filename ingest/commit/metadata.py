"""The store of metadata for the commit protocol: a start, a change built onto it, the swap.

``ingest.commit.commit`` decides, and ``ingest.commit.java_metadata`` does it with Iceberg's Java library.
What goes in and comes out is values; a handle is the store's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import TableChange


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot as the table's metadata has it."""

    snapshot_id: int
    summary: Mapping[str, str]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Start:
    """The metadata that one commit starts from, and that its swap takes the place of.

    ``schema`` is the table's current one, as Iceberg writes it in JSON.
    """

    current: StoredSnapshot | None
    properties: Mapping[str, str]
    handle: Any = None
    schema: str = ""


@dataclass(frozen=True, slots=True)
class Built:
    """Metadata that is ready to be published, and the snapshot that becomes the current one with it.

    ``manifest_list`` is the path of that snapshot's list of manifests, which is written by now.
    """

    snapshot_id: int
    handle: Any = None
    manifest_list: str = ""


class MetadataStore(Protocol):
    """One table's metadata, in a catalog that swaps it whole."""

    def start(self) -> Start:
        """The newest metadata, read again; from here on `snapshot` and `is_in_history` answer from it, too.

        Raises `NoTable` and `MetadataError`.
        """
        ...

    def build(self, start: Start, change: TableChange) -> Built:
        """The metadata that the change makes of its start; nobody sees it yet. Once at most for a start.

        Raises `MetadataError` where the table format refuses it, or its files could not be written.
        """
        ...

    def publish(self, start: Start, built: Built) -> None:
        """Make the built metadata the table's if it is still the very start; else nothing.

        Raises:
            LostRace: it is not, as the catalog says.
            NoAnswer: nobody can say whether it was done, or will be.
        """
        ...

    def refresh(self) -> None:
        """From here on the questions below are about the newest metadata.

        Raises `NoTable` and `MetadataError`.
        """
        ...

    def snapshot(self, snapshot_id: int) -> StoredSnapshot | None:
        """A snapshot of the table, whether it is part of main's history or not. Raises `MetadataError`."""
        ...

    def renew(self) -> None:
        """Load the table again, with what the catalog grants of the store. Raises a `ThermoclineError`."""
        ...

    def is_in_history(self, snapshot_id: int) -> bool:
        """Whether main's current snapshot is that one or follows it. Raises `MetadataError`."""
        ...


class MetadataError(Exception):
    """The store could not do as it was asked; the text says why in one line."""


class NoTable(MetadataError):
    """The catalog has no such table."""


class LostRace(MetadataError):
    """Another change was published first."""


class NoAnswer(MetadataError):
    """A swap was sent off, and nothing proves what became of it."""
