"""The settings of an issuer of tokens: who it is, and where the keys are that it signs with."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from thermocline.settings.section import Section

__all__ = ["Algorithm", "Issuer", "check_issuers"]

ISSUERS_MAX: Final = 16
"""Each has a thread in every worker; most have one, the company's identity provider."""
LEEWAY_SECONDS_MAX: Final = 300.0
"""Clocks differ by less; for so long, a token counts beyond its expiry."""
REFRESH_SECONDS_MAX: Final = 86_400.0
"""A key that its issuer revoked counts for so long at most, while the issuer can be reached."""
FLOOR_SECONDS_MIN: Final = 1.0
"""Whoever sends a token can have the issuer asked as often as that."""

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""All have a key that only signs, and another that only verifies. So ``none`` and ``HS256`` are not here."""
_NO_URL: Final = "it is no URL such as https://login.example.com/keys"
_Text = Annotated[str, Field(min_length=1, max_length=1_000)]


class Issuer(Section):
    """Who signs tokens: ``issuer`` and ``audience`` are their claims ``iss`` and ``aud``, to the letter.

    ``jwks_url`` or ``jwks_file`` has its keys (RFC 7517). A URL is asked every ``refresh_seconds``, and for a
    key that is not known yet, but never twice within ``floor_seconds``. ``ca_file`` has the certificates that
    its own is checked by, instead of those of the system. ``leeway_seconds``: how far clocks may differ.
    """

    issuer: _Text
    audience: _Text
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256",)
    jwks_url: str | None = None
    jwks_file: Path | None = None
    ca_file: Path | None = None
    leeway_seconds: Annotated[float, Field(ge=0, le=LEEWAY_SECONDS_MAX, allow_inf_nan=False)] = 30.0
    refresh_seconds: Annotated[float, Field(gt=0, le=REFRESH_SECONDS_MAX, allow_inf_nan=False)] = 300.0
    floor_seconds: Annotated[float, Field(ge=FLOOR_SECONDS_MIN, allow_inf_nan=False)] = 10.0

    @field_validator("jwks_url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            is_whole = bool(parts.hostname) and parts.port != 0 and not parts.fragment
        except ValueError:
            raise ValueError(_NO_URL) from None
        if not is_whole or any(character.isspace() for character in value):
            raise ValueError(_NO_URL)
        if "@" in parts.netloc:
            raise ValueError("it can't hold a user or password: the keys are public")
        is_local = parts.scheme == "http" and _is_loopback(parts.hostname or "")
        if parts.scheme != "https" and not is_local:  # safety: jwks-https
            raise ValueError(
                "it has to be https, since whoever can change the answer can sign tokens; "
                "http is taken to this machine alone (127.0.0.1, ::1, localhost)"
            )
        return value

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.jwks_url is None) == (self.jwks_file is None):
            raise ValueError("its keys come from one place: set either jwks_url or jwks_file")
        if self.ca_file is not None and self.jwks_url is None:
            raise ValueError("ca_file is for jwks_url, which is not set")
        if self.floor_seconds > self.refresh_seconds:
            raise ValueError("floor_seconds can't be more than refresh_seconds")
        return self

    @property
    def from_where(self) -> str:
        """The place of its keys, for people."""
        return self.jwks_url or str(self.jwks_file)


def check_issuers(issuers: Mapping[str, Issuer]) -> None:
    """Raises `ValueError` where they can't be together: a token says by ``iss`` alone whose it is."""
    if len(issuers) > ISSUERS_MAX:
        raise ValueError(f"there are {len(issuers)} issuers, and at most {ISSUERS_MAX} are taken")
    named = Counter(one.issuer for one in issuers.values())
    for issuer, count in named.items():
        if count > 1:
            names = [name for name, one in issuers.items() if one.issuer == issuer]
            raise ValueError(f"{' and '.join(names)} are the same issuer, {issuer}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
