"""Failures of disks and stores, by a name of ours: whoever asked may ask again, and nobody is told a path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import lmdb

from thermocline.errors import StorageFailed

# What files, object stores and LMDB raise. DuckDB's are named where DuckDB is known.
STORAGE_ERRORS: Final = (OSError, lmdb.Error)


class Renewable(Protocol):
    """A reader that is renewed after a failure."""

    has_failed: bool


def storage_failed(table: str, error: Exception) -> StorageFailed:
    """The failure by our name. Its words are the system's for the number, or else the error's class."""
    number = error.errno if isinstance(error, OSError) else None
    detail = type(error).__name__ if number is None else os.strerror(number)
    return StorageFailed(table=table, detail=detail)


@contextmanager
def failures_noted(reader: Renewable) -> Iterator[None]:
    """What the block raises of `STORAGE_ERRORS` is noted at the reader, which then is renewed."""
    try:
        yield
    except STORAGE_ERRORS:
        reader.has_failed = True
        raise


@contextmanager
def storage_named(table: str, *others: type[Exception]) -> Iterator[None]:
    """What the block raises of `STORAGE_ERRORS`, or of others, comes out as `StorageFailed`."""
    named: tuple[type[Exception], ...] = (*STORAGE_ERRORS, *others)
    try:
        yield
    except named as error:
        raise storage_failed(table, error) from error
