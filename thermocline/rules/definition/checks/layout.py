"""Checks of where a table is, and where its rows are in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from thermocline.rules.columns import spelled
from thermocline.rules.definition.options import BUCKETS_MAX, FORMAT_VERSIONS

if TYPE_CHECKING:
    from thermocline.rules.definition.table import LiveTable

__all__ = ["problems"]


def problems(table: LiveTable) -> Iterator[str]:
    """What is wrong with the options of `LayoutOptions`, a sentence for each problem."""
    if "." not in table.identifier or "" in table.identifier.split("."):
        yield f'identifier is "{table.identifier}", but must be of the form namespace.table'
    if table.entity != table.key[: len(table.entity)]:
        yield f"entity is {spelled(table.entity)}, but must be the first columns of key {spelled(table.key)}"
    if not 1 <= table.buckets <= BUCKETS_MAX:
        yield f"buckets is {table.buckets}, but must be from 1 to {BUCKETS_MAX}"
    elif table.buckets_written % table.buckets:
        yield f"file_buckets is {table.file_buckets}, but must be a multiple of buckets, {table.buckets}"
    if table.format_version not in FORMAT_VERSIONS:
        yield f"format_version is {table.format_version}, not {' or '.join(map(str, FORMAT_VERSIONS))}"
