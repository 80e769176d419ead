"""API keys: made, told apart, and checked against the hash that is kept of each.

A key is 256 random bits behind a name of its own. There is nothing to guess, so a fast hash of it is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final, Self

__all__ = ["ApiKey"]

_PREFIX: Final = "thermocline"
"""By which scanners of source code know it."""
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_FORM: Final = re.compile(rf"{_PREFIX}_([0-9a-f]{{{2 * _ID_BYTES}}})_([A-Za-z0-9_-]{{43}})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as a client sends it: ``id`` may be known, ``secret`` is shown once and kept nowhere."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """A random one."""
        return cls(secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The key of that text; None where it is no key of ours."""
        match = _FORM.fullmatch(text)
        return None if match is None else cls(*match.groups())

    @property
    def text(self) -> str:
        """What a client sends."""
        return f"{_PREFIX}_{self.id}_{self.secret}"

    def hash(self) -> str:
        """SHA-256 of the secret, as hexadecimal digits."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def has_hash(self, kept: str) -> bool:
        """Whether it is the one of which this was kept."""
        return hmac.compare_digest(self.hash(), kept)  # safety: key-hash
