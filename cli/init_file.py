"""The configuration that ``thermocline init`` writes: its text, with comments, and how it gets into a file.

What is said of a table is made of its definition, which was checked before. A file is written whole or not at
all, one that is there is never written over, and to one that gets a table everything else stays as it is.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import tomlkit

from thermocline.errors import BadParameter, ConfigExists
from thermocline.text.typed import again

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.recognise import Proposal

__all__ = [
    "Connections",
    "add_to_file",
    "comment",
    "connections_text",
    "create_file",
    "name_text",
    "table_text",
    "value_text",
    "with_section",
]

WIDTH: Final = 108
COMMENT_CHARACTERS_MAX: Final = 400
"""Of what a schema says of a field: some hold whole pages."""
_BESIDE: Final = ("identifier", "topics", "key", "entity", "columns")
"""Options that stand at the beginning, or in a section of their own."""
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+")


@dataclass(frozen=True, slots=True)
class Connections:
    """Where everything is; empty where a variable says it."""

    brokers: str
    client: Mapping[str, str]
    registry: str
    registry_user: str
    catalog_uri: str
    catalog_type: str
    warehouse: str


def connections_text(given: Connections) -> str:
    """The sections for Kafka, the registry, the catalog and ingest."""
    lines = ["# Written by init; docs/reference/settings.md has all settings.", "[kafka]"]
    lines += _assigned(bootstrap_servers=given.brokers)
    if given.client:
        lines += [
            "",
            "[kafka.client]",
            *(f"{name_text(name)} = {value_text(text)}" for name, text in given.client.items()),
        ]
    if given.registry:
        lines += ["", "[registry]", *_assigned(url=given.registry, user=given.registry_user)]
    kind = given.catalog_type if given.catalog_type != "sql" else ""
    lines += ["", "[catalog]", *_assigned(type=kind, uri=given.catalog_uri, warehouse=given.warehouse)]
    lines += [
        "",
        "[ingest]",
        'engine = "local"      # for small tables; leave it out for large ones, and Spark runs batches',
    ]
    return "\n".join(lines) + "\n"


def table_text(
    definition: LiveTable, proposal: Proposal, looked_at: str, files: Mapping[str, str] | None = None
) -> str:
    """The sections of a table, with the evidence for what is in them, and with what is not known.

    ``files`` are the paths of schemas, by the settings that name them.
    """
    name = name_text(definition.name)
    lines = [*comment(f"Proposed from {looked_at}.")]
    for label, found in proposal.findings:
        lines += comment(f"{label}: {found}", "  ")
    if proposal.unknown:
        lines += comment("What these don't tell:")
    for sentence in proposal.unknown:
        lines += comment(sentence, "  - ")
    lines += [f"[tables.{name}]", *_options(definition, files or {}), "", f"[tables.{name}.columns]"]
    evidence = {column.name: column for column in proposal.columns}
    for column in definition.columns:
        told = evidence[column.name]
        for note in told.notes:
            lines += comment(note)
        declared = value_text(told.declared)
        lines.append(
            f"{name_text(column.name)} = {declared}      {'; '.join(comment(told.evidence, width=10_000))}"
        )
    for left in proposal.left_out:
        lines += comment(f"{left.name}: left out; {left.why}")
    return "\n".join(lines) + "\n"


def comment(text: str, indent: str = "", width: int = WIDTH) -> list[str]:
    """A text as comments: whatever it holds, no line of it is anything else."""
    plain = _BREAKS.sub(" ", text).strip()  # safety: init-comment
    if len(plain) > COMMENT_CHARACTERS_MAX:
        plain = f"{plain[:COMMENT_CHARACTERS_MAX]}…"
    return textwrap.wrap(
        plain, width, initial_indent=f"# {indent}", subsequent_indent=f"# {' ' * len(indent)}"
    )


def create_file(path: Path, text: str) -> None:
    """A new file with that text. Raises `ConfigExists` where one is there, `BadParameter` on failure."""
    partial = _written(path, text.encode())
    try:
        os.link(partial, path)  # safety: init-never-overwrites
    except FileExistsError:
        raise ConfigExists(path=str(path), detail="it appeared meanwhile", command=again()) from None
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        partial.unlink()


def add_to_file(path: Path, before: bytes, section: str) -> None:
    """The file with a section behind what it has. Raises as `create_file` does, also where it was changed."""
    try:
        file = path.resolve(strict=True)
        mode = file.stat().st_mode
        partial = _written(file, with_section(before, section))
        try:
            partial.chmod(mode & 0o777)
            if file.read_bytes() != before:  # safety: init-unchanged-meanwhile
                raise ConfigExists(path=str(path), detail="it was changed meanwhile", command=again())
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def with_section(before: bytes, section: str) -> bytes:
    """The text of a file with a section behind it."""
    gap = b"" if not before.strip() else b"\n" if before.endswith(b"\n") else b"\n\n"
    return before + gap + section.encode()


def _options(definition: LiveTable, files: Mapping[str, str]) -> Iterator[str]:
    """The options of a definition that are not as they would be anyway."""
    from thermocline.rules.definition.option import settings_of
    from thermocline.rules.topic_patterns import entries_of

    yield from _assigned(identifier=definition.identifier, topics=list(entries_of(definition)))
    yield f"key = {value_text(list(definition.key))}"
    if definition.entity != definition.key:
        yield f"entity = {value_text(list(definition.entity))}"
    known = {setting: field for setting, field in settings_of(type(definition)) if setting not in _BESIDE}
    for setting, field in known.items():
        value = getattr(definition, field.name)
        is_usual = value == (
            definition.format if field.name == "key_format" else _default(definition, field.name)
        )
        if not is_usual:
            yield f"{setting} = {value_text(files.get(setting, getattr(value, 'declared', value)))}"


def _default(definition: LiveTable, name: str) -> Any:
    from thermocline.rules.definition.option import default_of

    return next(default_of(field) for field in fields(definition) if field.name == name)


def _assigned(**values: str | Sequence[str]) -> list[str]:
    return [f"{name} = {value_text(value)}" for name, value in values.items() if value]


def value_text(value: Any) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{name_text(name)} = {value_text(part)}" for name, part in value.items()) + " }"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    return str(tomlkit.item(value).as_string())


def name_text(name: str) -> str:
    """A name as TOML has it, quoted where it must be."""
    return tomlkit.key(name).as_string()


def _written(path: Path, content: bytes) -> Path:
    """A file beside another one, with that content, on the disk."""
    partial = path.with_name(f".{path.name}.{uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise _unwritable(path, error) from error
    return partial


def _unwritable(path: Path, error: OSError) -> BadParameter:
    return BadParameter(name=str(path), problem=f"can't be written: {error.strerror or error}")
