"""``thermocline table diff``: the file beside the tables, with what brings either to the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from thermocline.cli.init_file import name_text, value_text
from thermocline.cli.output import counted, error_document, show
from thermocline.errors import ExitCode, ThermoclineError
from thermocline.text.typed import command

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from thermocline.iceberg.compared import Compared
    from thermocline.rules.definition_diff import Difference
    from thermocline.settings import Settings

__all__ = ["diff_tables"]


def diff_tables(settings: Settings, names: list[str], as_json: bool) -> int:
    """Shows what differs; the exit code says whether something does, or why it can't be said."""
    from thermocline.iceberg.catalog import catalog_if_any

    catalog = catalog_if_any(settings.catalog) if names else None
    seen = [_seen(settings, catalog, name) for name in names]
    lines = [line for one in seen for line in _lines(one)]
    show([_document(one) for one in seen], Text("\n".join(lines)), as_json)
    if errors := [one.error.exit_code for one in seen if one.error is not None]:
        return max(errors)
    is_same = all(one.found is not None and one.found.is_same for one in seen)
    return ExitCode.DONE if is_same else ExitCode.BAD_ANSWER  # safety: diff-exit-code


@dataclass(frozen=True, slots=True)
class _Seen:
    """A table beside the file; without what was found, there is none, or it can't be read."""

    name: str
    identifier: str
    found: Compared | None = None
    error: ThermoclineError | None = None


def _seen(settings: Settings, catalog: Catalog | None, name: str) -> _Seen:
    from thermocline.iceberg.catalog import find_table
    from thermocline.iceberg.compared import compared

    configured = settings.table(name)
    identifier = configured.identifier
    table = find_table(catalog, identifier) if catalog is not None else None
    if table is None:
        return _Seen(name, identifier)
    try:
        return _Seen(name, identifier, compared(table, configured, name))
    except ThermoclineError as error:  # of this table alone
        return _Seen(name, identifier, error=error)


def _document(seen: _Seen) -> dict[str, Any]:
    head: dict[str, Any] = {"table": seen.name, "identifier": seen.identifier}
    found = seen.found
    if seen.error is not None:
        return head | {"exists": True, "error": error_document(seen.error)}
    if found is None:
        return head | {"exists": False, "differs": True, "next": command(f"table create {seen.name}")}
    return head | {
        "exists": True,
        "differs": not found.is_same,
        "definition_version": found.version,
        "differences": [_difference_document(found, one) for one in found.differences],
        "changed_by_others": list(found.changed_by_others),
        "added_by_others": list(found.added_by_others),
        "can_be_altered": not found.refusals,
    }


def _difference_document(found: Compared, one: Difference) -> dict[str, Any]:
    return {
        "of": one.of,
        "in_file": one.in_file,
        "in_table": one.in_table,
        "changes": list(one.changes),
        "refusals": list(one.refusals),
        "to_table": None if one.refusals else command(f"table alter {found.table}"),
        "to_file": {"section": _section(found.table, one), "lines": list(_file_lines(one))},
    }


def _lines(seen: _Seen) -> Iterator[str]:
    name, found = seen.name, seen.found
    if seen.error is not None:
        document = error_document(seen.error)
        yield f"{name}: [{seen.error.code}] {seen.error.what}"
        yield f"  next: {document['next']}"
    elif found is None:
        yield f"{name}: there is no table {seen.identifier} yet"
        yield f"  table like the file: {command(f'table create {name}')}"
    else:
        yield from _found_lines(name, found)


def _found_lines(name: str, found: Compared) -> Iterator[str]:
    if found.is_same:
        yield f"{name}: as the file says (version {found.version} of its definition)"
    else:
        count = counted(len(found.differences) + len(found.changed_by_others), "difference")
        yield f"{name}: {count} (the table has version {found.version} of its definition)"
    for one in found.differences:
        yield from _difference_lines(found, one)
    for changed in found.changed_by_others:
        yield f"  by another program: {changed}"
        yield f"    give it back: {command(f'table alter {name}')}"
    if found.added_by_others:
        yield f"  columns of another program, null in every row: {', '.join(found.added_by_others)}"
    if found.refusals and any(one.changes for one in found.differences):
        yield "  `table alter` changes all or nothing: first make the file like the table in what it refuses"


def _difference_lines(found: Compared, one: Difference) -> Iterator[str]:
    yield f"  {one.of}: {one.in_file} in the file, {one.in_table} in the table"
    for why in one.refusals:
        yield f"    table like the file: can't be altered: {why}"
    if one.changes:
        alter = command(f"table alter {found.table}")
        yield f"    table like the file: {alter}      ({'; '.join(one.changes)})"
    yield f"    file like the table: in [{_section(found.table, one)}]"
    yield from (f"      {line}" for line in _file_lines(one))


def _section(name: str, one: Difference) -> str:
    section = f"tables.{name_text(name)}"
    return f"{section}.columns" if one.in_columns or one.is_order else section


def _file_lines(one: Difference) -> Iterator[str]:
    """What to write into the section; a comment where that is no line."""
    setting = name_text(one.setting)
    if one.is_order:
        yield from (f"{name_text(name)} = {value_text(value)}" for name, value in one.value.items())
    elif one.value is None:
        yield f"# delete {setting}"
    elif one.setting.endswith("_schema_file"):
        yield f"# {setting}: a file with the schema that `table show` prints"
    else:
        yield f"{setting} = {value_text(one.value)}"
