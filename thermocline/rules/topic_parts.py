"""Parts of a topic's name: what a regular expression with one group takes out of it."""

from __future__ import annotations

import re
from functools import cache

__all__ = ["check_expression", "check_topic_pattern", "compiled", "topic_part"]


def topic_part(pattern: str, topic: str) -> str | None:
    """The text of the pattern's group; None where the topic's whole name does not match it."""
    found = compiled(pattern).fullmatch(topic)
    return None if found is None else found[1]


def check_topic_pattern(pattern: object) -> None:
    """Raises `ValueError` where it is not a regular expression with one group."""
    check_expression("topic", pattern)
    groups = compiled(str(pattern)).groups
    if groups != 1:
        raise ValueError(
            f'topic "{pattern}" has {groups} groups, but needs exactly one, of which the text is taken: '
            "(?:...) groups without being one"
        )


def check_expression(setting: str, pattern: object) -> None:
    """Raises `ValueError` where it is not a regular expression."""
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"{setting} is {pattern}, not a regular expression")
    try:
        compiled(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f'{setting} "{pattern}" is not a regular expression: {error}') from None


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The expression, in which a dot is any character."""
    return re.compile(pattern, re.DOTALL)
