"""Checks of the configuration: its problems, and the settings that have no effect."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thermocline.doctor.finding import Finding, Outcome, of_error, well
from thermocline.errors import ConfigInvalid, UnknownTable
from thermocline.serving.access.clients import read_clients
from thermocline.settings import check_settings, find_file, load_settings
from thermocline.settings.given import Given, given_settings

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.settings import Settings

__all__ = ["configuration", "deletion", "unused", "unused_in"]


def configuration(examination: Examination) -> Sequence[Finding]:
    """Whether it can be read, and what `config check` says of it. Chooses the tables to look at."""
    findings: list[Finding] = []
    try:
        settings = check_settings(examination.file)
        if settings.serving.clients_file is not None:
            read_clients(settings.serving.clients_file)
    except ConfigInvalid as error:
        findings.append(of_error(error, fix="thermocline config check"))
        try:
            settings = load_settings(examination.file)
        except ConfigInvalid:
            return findings
    for name in examination.tables:
        if name not in settings.tables:
            findings.append(of_error(UnknownTable(table=name, known=tuple(sorted(settings.tables)))))
            return findings
    examination.read_settings = settings
    examination.tables = examination.tables or tuple(settings.tables)
    said = f"{find_file(examination.file)} (tables: {', '.join(examination.tables) or 'none'})"
    return findings or (well(said),)


def unused(examination: Examination) -> Sequence[Finding]:
    """Settings that are given and change nothing as long as others are as they are."""
    given = given_settings(examination.file)
    file = find_file(examination.file)
    found = list(unused_in(examination.settings, given, file))
    return found or (well(f"{len(given):,} settings are given, and each has an effect"),)


def unused_in(settings: Settings, given: Sequence[Given], file: Path) -> Iterator[Finding]:
    """One finding for each of them."""
    for one in given:
        because = _why_unused(settings, one)
        if because is None:
            continue
        means = "it does nothing as it is: whoever set it may believe that it does"
        fix = f"unset {one.variable}" if one.variable else _without(file, one)
        origin = one.variable or str(file)
        yield Finding(Outcome.WARNING, f"{because} (from {origin})", means, fix, one.name)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Settings, as patterns of their names, that count only while something holds, and else why not.

    What a table's definition can't use is refused before.
    """

    names: tuple[str, ...]
    counts: Callable[[Settings], bool]
    because: str


_RULES: Final = (
    _Rule(
        ("registry.user", "registry.password", "registry.ca_file", "registry.timeout_seconds"),
        lambda settings: bool(settings.registry.url),
        "registry.url is empty",
    ),
    _Rule(
        ("lineage.key", "lineage.ca_file", "lineage.namespace", "lineage.timeout_seconds"),
        lambda settings: bool(settings.lineage.url),
        "lineage.url is empty",
    ),
    _Rule(("spark.*",), lambda settings: settings.ingest.engine == "spark", 'ingest.engine is "local"'),
    _Rule(
        (
            "serving.catalog.min_interval_seconds",
            "serving.catalog.files_per_hour_max",
            "serving.catalog.files_seconds",
        ),
        lambda settings: settings.serving.catalog.enabled,
        "serving.catalog.enabled is false",
    ),
    _Rule(
        ("serving.extract_jobs_retention_hours",),
        lambda settings: settings.serving.extract_jobs_dir is not None,
        "serving.extract_jobs_dir is not set",
    ),
    _Rule(
        ("audit.path", "audit.rotate_bytes", "audit.keep_files"),
        lambda settings: settings.audit.sink == "file",
        'audit.sink is not "file"',
    ),
    _Rule(("audit.topic",), lambda settings: settings.audit.sink == "kafka", 'audit.sink is not "kafka"'),
    _Rule(("audit.hash_key_file",), lambda settings: settings.audit.sink != "off", 'audit.sink is "off"'),
)


def _why_unused(settings: Settings, given: Given) -> str | None:
    for rule in _RULES:
        if any(fnmatchcase(given.name, one) for one in rule.names) and not rule.counts(settings):
            return rule.because
    return None


def _without(file: Path, given: Given) -> str:
    """The command that deletes a setting's line, where it has one of its own; wherever that is by then."""
    script = deletion(file.read_text(encoding="utf-8"), given.place)
    if script is None:
        return f"# delete {given.name} in the file\n${{EDITOR:-vi}} {shlex.quote(str(file))}"
    return f"sed -i.bak {shlex.quote(script)} {shlex.quote(str(file))}"


def deletion(text: str, place: tuple[str, ...]) -> str | None:
    """A script of sed that deletes one setting, and nothing else; None where no line is just that setting."""
    wanted = tomllib.loads(text)
    section = wanted
    for name in place[:-1]:
        section = section[name]
    del section[place[-1]]
    header, setting = f"[{'.'.join(place[:-1])}]", re.compile(rf"{re.escape(place[-1])}\s*=")
    left, is_within = [], False
    for line in text.splitlines(keepends=True):
        is_within = line.startswith(header) or (is_within and not line.startswith("["))
        if not (is_within and setting.match(line)):
            left.append(line)
    try:
        is_it = tomllib.loads("".join(left)) == wanted  # safety: doctor-deletes-one-setting
    except tomllib.TOMLDecodeError:
        return None
    escaped = header.replace("[", r"\[").replace("]", r"\]").replace(".", r"\.")
    return f"/^{escaped}/,/^\\[/{{/^{place[-1]}[[:space:]]*=/d}}" if is_it else None
