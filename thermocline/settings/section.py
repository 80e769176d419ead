"""Base of every section of the file: frozen, closed to unknown names, and printed without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, SecretStr
from pydantic_core import CoreSchema, core_schema

from thermocline.process.masking import MASK, is_secret_name, mask_password, secrets_within

__all__ = ["PassThrough", "Section"]


class PassThrough(dict[str, str]):
    """Another program's settings, by its names. Values may be secrets, so none is ever shown."""

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, MASK))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema()
        return core_schema.no_info_after_validator_function(cls, core_schema.dict_schema(text, text))


class Section(BaseModel):
    """A section of the file. Its printed form shows no secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def shown(self) -> dict[str, Any]:
        """Every setting with its value, nested, fit for JSON, secrets masked."""
        return {name: _shown(value) for name, value in self}

    def secrets(self) -> Iterator[str]:
        """What of it is secret, for `thermocline.process.masking.remember`.

        Of other programs' settings, those whose name says so, and passwords within the others.
        """
        for _, value in self:
            yield from _secrets_of(value)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from self.shown().items()


def _shown(value: object) -> Any:
    match value:
        case Section():
            return value.shown()
        case PassThrough():
            return dict.fromkeys(value, MASK)
        case SecretStr():
            return MASK
        case dict():
            return {name: _shown(part) for name, part in value.items()}
        case tuple():
            return [_shown(part) for part in value]
        case str() | Path():
            return mask_password(str(value))
        case _:
            return value


def _secrets_of(value: object) -> Iterator[str]:
    match value:
        case Section():
            yield from value.secrets()
        case SecretStr():
            yield value.get_secret_value()
        case PassThrough():
            for name, text in value.items():
                if is_secret_name(name):
                    yield text
                yield from secrets_within(text)
        case dict() | tuple():
            for part in value.values() if isinstance(value, dict) else value:
                yield from _secrets_of(part)
        case str():
            yield from secrets_within(value)
