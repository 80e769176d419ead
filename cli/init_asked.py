"""Answers that ``thermocline init`` needs: given by options, or asked for at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

import typer

from thermocline.cli.output import say, table
from thermocline.errors import BadParameter, NotConfirmed, did_you_mean
from thermocline.text.typed import again

__all__ = ["answer", "chosen_topic", "client_settings", "confirm", "is_asking", "variable"]

TOPICS_SHOWN_MAX: Final = 200


def is_asking(yes: bool) -> bool:
    """Whether somebody is there to answer, and wants to be asked."""
    return not yes and sys.stdin.isatty()


def variable(name: str) -> str:
    """What a variable of the environment says in place of a setting; empty where none does."""
    return os.environ.get(name, "")


def answer(option: str, given: str | None, question: str, default: str | None, asks: bool) -> str:
    """What an option says, or somebody at the terminal. Raises `BadParameter` where nobody can say it."""
    if given is not None:
        return given
    if not asks:
        if default is not None:
            return default
        raise BadParameter(
            name=option,
            problem="it is needed where nobody is asked, with --yes or without a terminal",
            correction=again(option, option.lstrip("-").upper()),
        )
    found: str = typer.prompt(question, default=default, err=True, show_default=bool(default))
    return found.strip()


def chosen_topic(given: str | None, topics: Mapping[str, int], asks: bool) -> str:
    """The topic that is meant. Raises `BadParameter`."""
    if given is None and not asks:
        shown = ", ".join(list(topics)[:TOPICS_SHOWN_MAX]) or "none"
        raise BadParameter(
            name="--topic",
            problem=f"it is needed where nobody is asked; the topics are {shown}",
            correction=again("--topic", next(iter(topics), "TOPIC")),
        )
    if given is None:
        if not topics:
            problem = "the brokers have no topics yet"
            raise BadParameter(name="--topic", problem=problem, correction="create one, and repeat this")
        _list(topics)
        given = typer.prompt(
            "Topic", default=next(iter(topics)) if len(topics) == 1 else None, err=True
        ).strip()
        if given.isdecimal() and given not in topics and 1 <= int(given) <= len(topics):
            given = list(topics)[int(given) - 1]
    assert given is not None
    if given not in topics:
        hint = did_you_mean(given, topics) or f"; there are {', '.join(list(topics)[:20]) or 'none'}"
        raise BadParameter(name="--topic", problem=f"the brokers have no topic {given}{hint}")
    return given


def client_settings(words: list[str]) -> dict[str, str]:
    """Settings of Kafka's client, from ``NAME=VALUE``. Raises `BadParameter`, also for an open secret."""
    from thermocline.process.masking import is_secret_name

    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not (name and sign):
            raise BadParameter(name="--client", problem=f'"{name}" is not NAME=VALUE')
        if is_secret_name(name) and "${" not in value:  # safety: init-no-secret
            problem = f"{name} would be in the file as it is; give a variable that has it"
            correction = f"--client '{name}=${{KAFKA_PASSWORD}}'"
            raise BadParameter(name="--client", problem=problem, correction=correction)
        found[name] = value
    return found


def confirm(path: str, yes: bool) -> bool:
    """Whether the file is to be written. Raises `NotConfirmed` where nobody can be asked."""
    if yes:
        return True
    if not is_asking(yes):
        problem = f"{path} would be written, and this was not confirmed"
        raise NotConfirmed(problem=problem, command=again("--yes"))
    return typer.confirm(f"Write {path}?", default=True, err=True)


def _list(topics: Mapping[str, int]) -> None:
    from rich.console import Console

    rows = [(number, name, count) for number, (name, count) in enumerate(topics.items(), start=1)]
    grid = table(("", "topic", "partitions"), rows[:TOPICS_SHOWN_MAX])
    Console(stderr=True, highlight=False, markup=False, emoji=False).print(grid)
    if len(rows) > TOPICS_SHOWN_MAX:
        say(f"and {len(rows) - TOPICS_SHOWN_MAX:,} more")
