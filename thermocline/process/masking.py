"""Keeps secrets out of whatever is shown: errors, logs and listings.

`mask_secrets` knows the secrets of the settings, which this process was told of (`remember`), and passwords
in URLs. `mask_password` is for what other programs say: it also takes for a secret what follows a name that
says so, such as ``password=value``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, unquote

__all__ = ["MASK", "is_secret_name", "mask_password", "mask_secrets", "remember", "secrets_within"]

MASK: Final = "****"
KNOWN_CHARACTERS_MIN: Final = 6
"""Of a secret that is looked for in any text: a shorter one is part of words, and soon guessed."""
ANYWHERE_CHARACTERS_MIN: Final = 12
"""Of a secret that is looked for within words, too: ``postgres`` as a password is not ``postgresql``."""
LINE_CHARACTERS_MIN: Final = 16
"""Of a line of a longer secret, as of a key in PEM, which may be shown by itself."""

_IN_URL: Final = re.compile(r"(?<=://)([^\s/:]*):([^\s/]+)(?=@)")
_NAMES: Final = (
    r"password|passwd|passphrase|pwd|secret|token|credential|api[-_.]?key|private[-_.]?key|access[-_.]?key|"
    r"account[-_.]?key|shared[-_.]?key|encryption[-_.]?key|connection[-_.]?string|key[-_.]?pem|signature|"
    r"authorization|jaas"
)
_NAME: Final = re.compile(_NAMES, re.IGNORECASE)
# As in `password=x`, `sasl.password: "a b"` and `{"s3.secret-access-key": "x"}`.
_IN_PAIR: Final = re.compile(
    rf"(?i)((?:{_NAMES})[\w.-]{{0,64}}[\"']?\s*[=:]\s*)((?:bearer|basic)\s+\S+|\"[^\"]*\"|'[^']*'|[^\s&;,]+)"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{8,}")

_OURS: Final = frozenset({"thermocline", "password", "secret"})
"""Words that no secret should be, and that are in what we say ourselves."""

_known: dict[str, re.Pattern[str]] = {}
"""What this process was told of, the longest first."""


def mask_password(text: str) -> str:
    """The text with each password in it replaced by asterisks."""
    return _BEARER.sub(rf"\1{MASK}", _IN_PAIR.sub(rf"\1{MASK}", mask_secrets(text)))


def mask_secrets(text: str) -> str:
    """The text without the secrets that this process knows, and without passwords in URLs."""
    for secret, pattern in _known.items():
        if secret in text:
            text = pattern.sub(MASK, text)  # safety: known-secrets
    return _IN_URL.sub(rf"\1:{MASK}", text) if "://" in text else text


def remember(secrets: Iterable[str]) -> None:
    """Has `mask_secrets` look for these from now on, in this process, as far as they are long enough."""
    known = {*_known, *(form for secret in secrets if secret not in _OURS for form in _forms(secret))}
    patterns = {secret: _pattern(secret) for secret in sorted(known, key=lambda secret: -len(secret))}
    _known.clear()
    _known.update(patterns)


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting of that name is a secret, by what the name says."""
    return _NAME.search(name) is not None


def secrets_within(text: str) -> Iterator[str]:
    """The passwords in a text that is none itself: of its URLs, and of its ``name=value``."""
    for match in _IN_URL.finditer(text):
        yield match[2]
        yield unquote(match[2])
    for match in _IN_PAIR.finditer(text):
        yield match[2].strip("\"'")


def _pattern(secret: str) -> re.Pattern[str]:
    is_long = len(secret) >= ANYWHERE_CHARACTERS_MIN
    return re.compile(re.escape(secret) if is_long else rf"(?<!\w){re.escape(secret)}(?!\w)")


def _forms(secret: str) -> Iterator[str]:
    """How a secret may stand in a text: as it is, in a URL, in JSON, and by lines."""
    lines = [line for line in secret.splitlines() if not line.startswith("-----")]
    long_lines = [line for line in lines if len(line) >= LINE_CHARACTERS_MIN]
    forms = (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], *long_lines)
    yield from (form for form in forms if len(form) >= KNOWN_CHARACTERS_MIN)
