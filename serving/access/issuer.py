"""The settings of an issuer of tokens: who it is, and where the keys are that it signs with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from thermocline.serving.access.keys_url import check_issuer_url, check_keys_url, configuration_url
from thermocline.settings.section import Section

__all__ = ["Algorithm", "Issuer", "check_issuers", "token_type"]

ISSUERS_MAX: Final = 16
"""Each has a thread in every worker; most have one, the company's identity provider."""
LEEWAY_SECONDS_MAX: Final = 300.0
"""Clocks differ by less; for so long, a token counts beyond its expiry."""
REFRESH_SECONDS_MAX: Final = 86_400.0
"""A key that its issuer revoked counts for so long at most, while the issuer can be reached."""
AUDIENCES_MAX: Final = 16
"""A server has one name, or a few while it gets another one."""
FLOOR_SECONDS_MIN: Final = 1.0
"""Whoever sends a token can have the issuer asked as often as that."""

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""All have a key that only signs, and another that only verifies. So ``none`` and ``HS256`` are not here."""
TYPES: Final = ("jwt", "at+jwt")
"""Of tokens that are taken where none are configured, beside those that name none. Issuers sign tokens for
other ends, too, such as those that tell of a logout, and these are called otherwise (RFC 8725, 3.11)."""
_Text = Annotated[str, Field(min_length=1, max_length=1_000)]
_Type = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$&^_.+-]+(/[A-Za-z0-9!#$&^_.+-]+)?$", max_length=100)]


class Issuer(Section):
    """Who signs tokens: ``issuer`` and ``audience`` are their claims ``iss`` and ``aud``, to the letter.

    Of several audiences, a token is for one at least. ``types`` are those that it may have (``typ``); None:
    any of ``TYPES``, or none. ``jwks_url`` or ``jwks_file`` has its keys (RFC 7517); without both, the
    issuer's own configuration names their URL. It is asked every ``refresh_seconds``, and for a key that is
    not known yet, but never twice within ``floor_seconds``. ``ca_file`` has the certificates that its own is
    checked by, instead of those of the system. ``leeway_seconds``: how far clocks may differ.
    """

    issuer: _Text
    audience: Annotated[tuple[_Text, ...], Field(max_length=AUDIENCES_MAX)]
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256",)
    types: tuple[_Type, ...] | None = None
    jwks_url: str | None = None
    jwks_file: Path | None = None
    ca_file: Path | None = None
    leeway_seconds: Annotated[float, Field(ge=0, le=LEEWAY_SECONDS_MAX, allow_inf_nan=False)] = 30.0
    refresh_seconds: Annotated[float, Field(gt=0, le=REFRESH_SECONDS_MAX, allow_inf_nan=False)] = 300.0
    floor_seconds: Annotated[float, Field(ge=FLOOR_SECONDS_MIN, allow_inf_nan=False)] = 10.0

    @field_validator("audience", mode="before")
    @classmethod
    def _audiences(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("audience")
    @classmethod
    def _check_audiences(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("it names none, so that no token would be for this server")
        return value

    @field_validator("types")
    @classmethod
    def _check_types(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError("it names none; leave it out, so that JWT and at+jwt are taken")
        return None if value is None else tuple(map(token_type, value))

    @field_validator("jwks_url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None:
            check_keys_url(value)
        return value

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.jwks_url is not None and self.jwks_file is not None:
            raise ValueError("its keys come from one place: set jwks_url or jwks_file, not both")
        if self.jwks_file is None and self.jwks_url is None:
            check_issuer_url(self.issuer)
        if self.ca_file is not None and self.jwks_file is not None:
            raise ValueError("ca_file is for keys that are asked for, and jwks_file has them")
        if self.floor_seconds > self.refresh_seconds:
            raise ValueError("floor_seconds can't be more than refresh_seconds")
        return self

    def takes_type(self, said: object) -> bool:
        """Whether it signs tokens for us under that ``typ``, of which None is that there is none."""
        if said is None:
            return self.types is None
        return isinstance(said, str) and token_type(said) in (self.types or TYPES)

    @property
    def from_where(self) -> str:
        """The place of its keys, for people."""
        if self.jwks_file is not None:
            return str(self.jwks_file)
        return self.jwks_url or configuration_url(self.issuer)


def check_issuers(issuers: Mapping[str, Issuer]) -> None:
    """Raises `ValueError` where they can't be together: a token says by ``iss`` alone whose it is."""
    if len(issuers) > ISSUERS_MAX:
        raise ValueError(f"there are {len(issuers)} issuers, and at most {ISSUERS_MAX} are taken")
    named = Counter(one.issuer for one in issuers.values())
    for issuer, count in named.items():
        if count > 1:
            names = [name for name, one in issuers.items() if one.issuer == issuer]
            raise ValueError(f"{' and '.join(names)} are the same issuer, {issuer}")


def token_type(text: str) -> str:
    """The type of a token, which may be written in several ways (RFC 7515, 4.1.9)."""
    return text.lower().removeprefix("application/")
