"""The clients file: who may ask, how they are told apart, and what each may do.

It is TOML, and apart from the configuration so that it can change, and be kept secret, by itself. A server
reads it again when it changes: see `ClientsFile`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from thermocline.errors import ConfigInvalid
from thermocline.serving.access.issuer import Issuer, check_issuers
from thermocline.serving.read.caller import ANY_TABLE, WHOLE, Action, Grant, Part
from thermocline.settings.limits import Limits
from thermocline.settings.section import Section

if TYPE_CHECKING:
    from thermocline.settings import ServingSettings

__all__ = ["ANONYMOUS", "Client", "Clients", "TableGrant", "read_clients", "why_unknown"]

ANONYMOUS: Final = "anonymous"
"""The client that those are who bring no credentials, where the file has one."""
CLAIM: Final = "claim:"
"""What a value of a scope begins with that is taken from the caller's token."""
_MAKES_IT: Final = "thermocline client create NAME --table TABLE      (makes the file, with a first client)"
KEYS_MAX: Final = 2
"""That count at a time: one, and the one that takes its place."""

_PATTERN: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,63})?\*")
"""Of tables: the beginning of their names, and what stands for the rest."""
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}$")]
_ScopeValue = Annotated[str, Field(max_length=1_000)]


class KeyEntry(Section):
    """An API key, as far as it is kept: ``sha256`` is of its secret."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created: datetime | None = None
    expires: datetime | None = None

    @field_validator("created", "expires")
    @classmethod
    def _check_zone(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("it needs a time zone, such as 2027-01-31T00:00:00Z")
        return value

    def counts_at(self, now_ms: int) -> bool:
        """Whether it has not expired."""
        return self.expires is None or now_ms < self.expires.timestamp() * 1000  # safety: key-expiry


class TableGrant(Section):
    """What a client may do with a table: ``verbs``, on these ``columns`` beside the key, in a ``scope``."""

    verbs: Annotated[tuple[Action, ...], Field(min_length=1)]
    columns: tuple[str, ...] | None = None
    scope: dict[str, _ScopeValue] = Field(default_factory=dict)

    @field_validator("scope", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        # Written as a number, a value is the same as in quotes.
        return {
            name: str(one) if isinstance(one, int) and not isinstance(one, bool) else one
            for name, one in value.items()
        }

    @model_validator(mode="after")
    def _check_part(self) -> Self:
        if not self.scope and self.columns is None:
            return self
        if Action.CATALOG in self.verbs:
            raise ValueError("with columns or a scope there is no verb catalog: files hold the whole table")
        if Action.ADMIN in self.verbs:
            raise ValueError("with columns or a scope there is no verb admin: it counts the whole table")
        return self

    def grant(self, claims: Mapping[str, object]) -> Grant | None:
        """For a caller with these claims; None where a claim is missing that the scope is taken from."""
        scope: list[tuple[str, str]] = []
        for column, text in self.scope.items():
            value = claims.get(text.removeprefix(CLAIM)) if text.startswith(CLAIM) else text
            # safety: claim-missing
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                return None
            scope.append((column, str(value)))
        part = Part(self.columns, tuple(scope)) if scope or self.columns is not None else WHOLE
        return Grant(frozenset(self.verbs), part)


class Client(Section):
    """One client: by any of ``keys``, of ``certificates``, or a token of ``issuer`` with these ``claims``."""

    keys: tuple[KeyEntry, ...] = ()
    certificates: tuple[Annotated[str, Field(pattern=r"^(dns|uri|cn):.+$")], ...] = ()
    issuer: str | None = None
    claims: dict[str, str] = Field(default_factory=dict)
    tables: dict[str, TableGrant] = Field(default_factory=dict)
    limits: Limits | None = None

    @field_validator("tables")
    @classmethod
    def _check_patterns(cls, tables: dict[str, TableGrant]) -> dict[str, TableGrant]:
        for name in tables:
            if ANY_TABLE in name and not _PATTERN.fullmatch(name):  # safety: grant-pattern-plain
                raise ValueError(f'"{name}" is no pattern: it is the beginning of names, followed by *')
        return tables

    @model_validator(mode="after")
    def _check_claims(self) -> Self:
        takes_claims = self.claims or any(
            text.startswith(CLAIM) for grant in self.tables.values() for text in grant.scope.values()
        )
        if takes_claims and self.issuer is None:
            raise ValueError("claims are those of a token: issuer has to name who signs it")
        if takes_claims and (self.keys or self.certificates):
            raise ValueError("its scope is taken from a token, which who brings a key or certificate has not")
        return self

    def grants(self, claims: Mapping[str, object]) -> dict[str, Grant]:
        """By table, for a caller with these claims."""
        found = {table: grant.grant(claims) for table, grant in self.tables.items()}
        return {table: grant or Grant(frozenset()) for table, grant in found.items()}

    def takes(self, issuer: str, claims: Mapping[str, object]) -> bool:
        """Whether a token of that issuer, with these claims, is one of this client's."""
        # safety: claims-wanted
        return self.issuer == issuer and all(
            _has(claims.get(name), wanted) for name, wanted in self.claims.items()
        )


class Clients(Section):
    """All of the file."""

    clients: dict[_Name, Client] = Field(default_factory=dict)
    issuers: dict[_Name, Issuer] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_each(self) -> Self:
        check_issuers(self.issuers)
        problems = [*self._twice(), *self._of_anonymous(), *self._without_issuer()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _twice(self) -> Iterator[str]:
        seen: dict[str, str] = {}
        for name, client in self.clients.items():
            for what in (*(f"the key {key.id}" for key in client.keys), *client.certificates):
                if what in seen:
                    yield f"{what} is of {seen[what]} and of {name}"
                seen[what] = name

    def _without_issuer(self) -> Iterator[str]:
        for name, client in self.clients.items():
            if client.issuer is not None and client.issuer not in self.issuers:
                yield f"{name} names the issuer {client.issuer}, which is none of [issuers]"

    def _of_anonymous(self) -> Iterator[str]:
        found = self.clients.get(ANONYMOUS)
        if found is not None and (found.keys or found.certificates or found.issuer):
            yield f"{ANONYMOUS} is who brings no credentials, and can't have any"


def read_clients(path: Path, shown: Path | None = None) -> Clients:
    """The clients file. Raises `ConfigInvalid` with all that is wrong with it, under the name ``shown``."""
    of = f"in {shown or path}"
    try:
        found = Clients.model_validate(tomllib.loads(path.read_bytes().decode()))
        return found.model_copy(update={"issuers": _beside(path, found.issuers)})
    except ValidationError as error:
        problems = tuple(
            f"{'.'.join(map(str, one['loc'])) or 'clients'}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors(include_input=False, include_url=False)
        )
        raise ConfigInvalid(of=of, problems=problems) from None  # its input may hold secrets
    except FileNotFoundError as error:
        raise ConfigInvalid(of=of, problems=("no such file",), step=_MAKES_IT) from error
    except OSError as error:
        raise ConfigInvalid(of=of, problems=(error.strerror or str(error),)) from error
    except RecursionError as error:
        raise ConfigInvalid(of=of, problems=("it is nested too deeply",)) from error
    except ValueError as error:
        raise ConfigInvalid(of=of, problems=(str(error),)) from error


def why_unknown(client: Client, serving: ServingSettings) -> str | None:
    """Why nobody is known by a client's certificates; None where they are, or where it has none."""
    if not client.certificates or serving.tls_client_ca is not None:
        return None
    return "nobody is known by its certificates: serving.tls_client_ca is not set"


def _has(claim: object, wanted: str) -> bool:
    """Whether a claim is that text or number, or a list with it."""
    if isinstance(claim, list):
        return any(_has(one, wanted) for one in claim if not isinstance(one, list))
    return not isinstance(claim, bool) and isinstance(claim, (str, int)) and str(claim) == wanted


def _beside(path: Path, issuers: Mapping[str, Issuer]) -> dict[str, Issuer]:
    """The issuers with the paths of their files, which are given from where the clients file is."""

    def places(issuer: Issuer) -> dict[str, Path]:
        given = {"jwks_file": issuer.jwks_file, "ca_file": issuer.ca_file}
        return {name: path.parent / file for name, file in given.items() if file is not None}

    return {name: issuer.model_copy(update=places(issuer)) for name, issuer in issuers.items()}
