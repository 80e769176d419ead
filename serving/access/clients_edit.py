"""Changes of a clients file by commands: keys made and revoked, grants given; comments in it stay."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from thermocline.errors import BadParameter, ConfigInvalid
from thermocline.serving.access.clients import ANONYMOUS, KEYS_MAX, Client, Clients, read_clients
from thermocline.serving.access.keys import ApiKey

if TYPE_CHECKING:
    from tomlkit.items import Table

__all__ = ["Granted", "add_key", "change_grants", "revoke_keys"]

PRIVATE: Final = 0o600
VERBS_UNLESS_SAID: Final = ("lookup", "extract")
_HEAD: Final = (
    "Who may ask the server, and for what: see docs/security.md. Keys are kept as hashes.",
    "A server reads this file again within three seconds of a change.",
)


@dataclass(frozen=True, slots=True)
class Granted:
    """What a client is to be granted on one table, by the names of the file.

    Of a grant that it has, None keeps what is there; of a new one, it means lookups and extracts, all columns
    and all rows. An empty scope means all rows, and empty columns mean all columns.
    """

    table: str
    verbs: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    scope: Mapping[str, str] | None = None


def add_key(
    path: Path, name: str, granted: Sequence[Granted], expires: datetime | None, now: datetime
) -> ApiKey | None:
    """Give a client, new or not, another key and these grants; the key, None for who needs none.

    Raises:
        BadParameter: it has as many keys as count at a time.
        ConfigInvalid: the file is not valid, or would not be.
    """
    with _changed(path) as (document, before):
        client = _client(document, name)
        for one in granted:
            _grant(client, one)
        if name == ANONYMOUS:
            return None
        _drop_expired(client, before.clients.get(name), now)
        if len(client["keys"]) >= KEYS_MAX:  # safety: keys-two
            problem = f"it has {KEYS_MAX} keys that count: revoke one first"
            raise BadParameter(name=name, problem=problem)
        key = ApiKey.new()
        entry = tomlkit.inline_table()
        entry.update({"id": key.id, "sha256": key.hash(), "created": now.replace(microsecond=0)})
        if expires is not None:
            entry["expires"] = expires.replace(microsecond=0)
        client["keys"].append(entry)
    return key


def change_grants(path: Path, name: str, granted: Sequence[Granted]) -> None:
    """Change what a client may do; its keys stay. Raises as `revoke_keys`."""
    with _changed(path) as (document, before):
        if name not in before.clients:
            raise BadParameter(name=name, problem=f"there is no such client in {path}")
        for one in granted:
            _grant(_client(document, name), one)


def revoke_keys(path: Path, name: str, key_id: str | None) -> list[str]:
    """Take one key of a client from the file, or all; the ids of those that are gone.

    Raises `BadParameter` where there is no such client or key, `ConfigInvalid` as `add_key`.
    """
    with _changed(path) as (document, before):
        if name not in before.clients:
            raise BadParameter(name=name, problem=f"there is no such client in {path}")
        client = _client(document, name)
        ids = [entry["id"] for entry in client["keys"]]
        gone = [one for one in ids if key_id in (None, one)]
        if not gone:
            known = ", ".join(ids) or "none"
            raise BadParameter(name=key_id or name, problem=f"{name} has no such key; it has {known}")
        for place in reversed(range(len(ids))):
            if ids[place] in gone:
                del client["keys"][place]
    return gone


@contextmanager
def _changed(path: Path) -> Iterator[tuple[tomlkit.TOMLDocument, Clients]]:
    """The file to be changed, and what it says before; replaced as a whole, by one command at a time."""
    path = path.resolve()  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        before = read_clients(path) if path.exists() else Clients()
        document = _parsed(path) if path.exists() else _new()
        yield document, before
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(unfinished, "w", opener=_private) as file:  # Path.open takes no opener
                file.write(tomlkit.dumps(document))
                file.flush()
                _keep_rights(path, file.fileno())
                os.fsync(file.fileno())
            read_clients(unfinished, shown=path)  # safety: clients-valid
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def _keep_rights(path: Path, descriptor: int) -> None:
    """So that a server of another user can go on reading it."""
    with suppress(FileNotFoundError):
        before = path.stat()
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))  # safety: clients-file-rights
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


def _parsed(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(path.read_text())
    except TOMLKitError as error:
        raise ConfigInvalid(of=f"in {path}", problems=(str(error),)) from error


def _new() -> tomlkit.TOMLDocument:
    document = tomlkit.document()
    for line in _HEAD:
        document.add(tomlkit.comment(line))
    document.add(tomlkit.nl())
    return document


def _client(document: tomlkit.TOMLDocument, name: str) -> Table:
    clients = document.setdefault("clients", tomlkit.table(is_super_table=True))
    client: Any = clients.setdefault(name, tomlkit.table())
    if "keys" not in client:
        client["keys"] = tomlkit.array().multiline(multiline=True)
    client.setdefault("tables", tomlkit.table(is_super_table=True))
    found: Table = client
    return found


def _grant(client: Table, one: Granted) -> None:
    """Who is given a verb must not be given rows by that: what is not named stays."""
    tables: Any = client["tables"]
    grant = tables.setdefault(one.table, tomlkit.table())  # safety: grant-kept
    if one.verbs is not None or "verbs" not in grant:
        grant["verbs"] = list(one.verbs or VERBS_UNLESS_SAID)
    if one.columns is not None:
        _put(grant, "columns", list(one.columns))
    if one.scope is not None:
        scope = tomlkit.inline_table()
        scope.update(dict(one.scope))
        _put(grant, "scope", scope)


def _put(grant: Any, name: str, value: Any) -> None:
    """Nothing stands for all: an empty list of columns in the file would mean the key alone."""
    if value:
        grant[name] = value
    else:
        grant.pop(name, None)


def _drop_expired(client: Table, before: Client | None, now: datetime) -> None:
    """So that a key that no longer counts is in nobody's way."""
    now_ms = int(now.astimezone(UTC).timestamp() * 1000)
    keys: Any = client["keys"]
    for place, entry in reversed(list(enumerate(before.keys if before else ()))):
        if not entry.counts_at(now_ms):
            del keys[place]
