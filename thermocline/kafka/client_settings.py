"""Checks the settings of Kafka's client by the client itself, and says which names are meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Final

from confluent_kafka import KafkaException

from thermocline.errors import did_you_mean
from thermocline.kafka.admin import admin_client

__all__ = ["known_properties", "problems_of_client", "reworded"]

_QUOTED: Final = re.compile(r"[\"`']([^\"`']+)[\"`']")
_VALUE: Final = re.compile(r'Invalid value(?: "[^"]*")?')
_PREFIX: Final = "Failed to create admin client: "
_UNKNOWN: Final = re.compile(r'No such configuration property: "([^"]+)"')


@cache
def known_properties() -> tuple[str, ...]:
    """The names that librdkafka documents, for suggestions: what it takes, the client says."""
    text = (resources.files("thermocline.kafka") / "librdkafka_properties.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


def problems_of_client(config: Mapping[str, str]) -> Iterator[str]:
    """Why no client can be made of the settings in [kafka.client]. Asks no broker."""
    left = dict(config)
    while left:  # each round drops one of them, or is the last
        refusal = _refusal(left)
        if refusal is None:
            return
        named = next((name for name in _QUOTED.findall(refusal) if name in left), None)
        yield f"kafka.client{f'.{named}' if named else ''}: {reworded(refusal)}"
        if named is None:
            return
        del left[named]


def reworded(refusal: str) -> str:
    """What librdkafka says against settings, without a value, which may be a secret.

    Of a name that it doesn't know, with the one that is meant, if one is close.
    """
    unknown = _UNKNOWN.fullmatch(refusal)
    if unknown is not None:
        name = unknown[1]
        return f'librdkafka has no property "{name}"{did_you_mean(name, known_properties())}'
    return _VALUE.sub("invalid value", refusal.strip().removeprefix(_PREFIX))


def _refusal(config: Mapping[str, str]) -> str | None:
    """What librdkafka says against them, if anything; without addresses, no broker is asked."""

    class Owner:
        """Lives for this question."""

    owner = Owner()
    try:
        admin_client(owner, {**config, "log_level": 0})
    except KafkaException as error:
        return str(error.args[0].str())
    return None
