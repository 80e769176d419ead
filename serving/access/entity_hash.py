"""The hashes by which the audit log names entities: keyed, so that nobody without the key can try values.

A hash is HMAC-SHA256, of which 16 bytes are kept, of the table's name, a zero byte, and the bytes of the
entity's columns as keys have them (`thermocline.rules.keys`). It is the same in every line about an entity,
whether a lookup asked for the whole entity or for one row of it.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from thermocline.errors import ConfigInvalid
from thermocline.rules.keys import encode_one

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.rules.definition import LiveTable
    from thermocline.serving.cold.reader import Entity

__all__ = ["EntityHash", "hash_key"]

KEY_BYTES: Final = 32  # as many as SHA-256 gives; a shorter key could be tried out
KEY_BYTES_MAX: Final = 4_096  # what is longer is some other file
HASH_BYTES: Final = 16  # of ten billion entities, two share a hash with a chance of 1 in 10^18
HASHES_KEPT_MAX: Final = 8_192  # of the entities asked for last, some megabytes; a hash takes 2 µs
ENTITY_KEPT_BYTES_MAX: Final = 512  # of longer entities, which callers may choose, no hash is kept
_SEPARATOR: Final = b"\0"
"""Between the name of a table, which has none, and the key: so no two pairs of them are the same bytes."""


class EntityHash:
    """Hashes entities by one key, which it shows to nobody."""

    __slots__ = ("_hash", "_key")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._hash = lru_cache(HASHES_KEPT_MAX)(self._made)

    def of(self, definition: LiveTable, entity: Entity) -> str:
        """The hash of the entity that the values begin with, as 32 hexadecimal digits."""
        of_entity = entity.values[: len(definition.entity)]  # safety: audit-hash-of-entity
        is_whole = len(of_entity) == len(entity.values)
        encoded = entity.prefix if is_whole else encode_one(definition, of_entity)
        is_short = len(encoded) <= ENTITY_KEPT_BYTES_MAX
        return (self._hash if is_short else self._made)(definition.name, encoded)

    def _made(self, table: str, encoded: bytes) -> str:
        digest = hmac.digest(self._key, table.encode() + _SEPARATOR + encoded, "sha256")
        return digest[:HASH_BYTES].hex()


def hash_key(path: Path) -> bytes:
    """The key in a file, which is created, for this user alone, if it does not exist.

    Raises `ConfigInvalid` where the file can't be read or written, holds no key, or is for everybody to read.
    """
    try:
        if not path.exists():
            _create(path)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(KEY_BYTES_MAX + 1)
    except OSError as error:
        raise _unusable(path, f"it can't be used: {error.strerror or error}") from error
    if status.st_mode & stat.S_IROTH:  # safety: audit-key-secret
        raise _unusable(path, "every user of this machine can read it: chmod o-r")
    if not KEY_BYTES <= len(key) <= KEY_BYTES_MAX:  # safety: audit-key-long
        allowed = f"a key has {KEY_BYTES} to {KEY_BYTES_MAX:,}"
        raise _unusable(path, f"it holds {status.st_size:,} bytes; {allowed}")
    return key


def _create(path: Path) -> None:
    """A file appears with its whole key, or not at all; the first of several processes makes it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first
            os.link(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _unusable(path: Path, problem: str) -> ConfigInvalid:
    return ConfigInvalid(of="[audit]", problems=(f"audit.hash_key_file: {path}: {problem}",))
