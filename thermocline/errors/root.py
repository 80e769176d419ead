"""The root of all errors: facts in, words out, one shape for the terminal, for HTTP and for the log."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, ClassVar, Final, dataclass_transform

from thermocline.process.masking import mask_secrets

SAME_COMMAND: Final = "run the same command again"
"""What to do next, where any command may have met the error; on the command line, that command is printed."""


class ExitCode(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    BAD_ANSWER = 1
    USAGE = 2
    UNAVAILABLE = 3
    COMMIT_UNKNOWN = 4
    NOTHING_TO_DO = 10
    PARTLY_DONE = 20
    NOT_OWNER = 30
    STOPPED = 40
    BUG = 70


@dataclass_transform(kw_only_default=True, eq_default=False)
class ThermoclineError(Exception):
    """The root of all errors that Thermocline raises on purpose.

    A subclass names its facts as annotated attributes, which become keyword arguments, and its words as
    format strings of these facts; a tuple is joined with commas. It survives pickling.
    """

    code: ClassVar[str]
    http_status: ClassVar[int]
    exit_code: ClassVar[ExitCode]
    retryable: ClassVar[bool] = False
    members: ClassVar[tuple[str, ...]] = ()
    """The facts that are members of a problem by themselves, named as in other answers."""

    _what: ClassVar[str] = ""
    _state: ClassVar[str] = ""
    _cause: ClassVar[str] = ""
    _next: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(kw_only=True, eq=False)(cls)

    @property
    def status(self) -> int:
        """The HTTP status of an answer with this error."""
        return self.http_status

    @property
    def is_retryable(self) -> bool:
        """Whether it can go away by itself, by its class or its facts."""
        return self.retryable

    @property
    def what(self) -> str:
        """What happened, with the facts."""
        return self._worded(self._what)

    @property
    def state(self) -> str:
        """What state the data is in now; empty where data was not concerned."""
        return self._worded(self._state)

    @property
    def cause(self) -> str:
        """Why it happened; empty where that is not known or is plain from what happened."""
        return self._worded(self._cause)

    @property
    def next(self) -> str:
        """What to do next, a command where there is one; empty where nothing is to be done."""
        return self._worded(self._next)

    @classmethod
    def title(cls) -> str:
        """The first line of the page, without its full stop; the same for every error of the class."""
        return cls.page().partition("\n")[0].removesuffix(".")

    @classmethod
    def page(cls) -> str:
        """What ``thermocline explain CODE`` prints: the docstring of the class."""
        return inspect.cleandoc(cls.__doc__ or "")

    def facts(self) -> dict[str, Any]:
        """The typed attributes by name."""
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def kept(cls) -> frozenset[str]:
        """The facts of the cause alone, which may quote other software's inner workings."""
        said = cls._what + cls._state + cls._next
        names = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        return frozenset(name for name in names if f"{{{name}}}" in cls._cause and f"{{{name}}}" not in said)

    def to_problem(self, instance: str) -> dict[str, object]:
        """The body of an ``application/problem+json`` answer; ``instance`` is the request's path or id.

        ``cause`` is left out: it may quote other software's inner workings, which belong in the log.
        """
        return {
            "type": f"urn:thermocline:error:{self.code}",
            "title": self.title(),
            "status": self.status,
            "detail": self.what,
            "instance": instance,
            "code": self.code,
            "state": self.state,
            "next": self.next,
            "retryable": self.is_retryable,
            **{name: getattr(self, name) for name in self.members},
        }

    def _worded(self, words: str) -> str:
        return mask_secrets(words.format_map(_Facts(self)))  # safety: errors-without-secrets

    def __str__(self) -> str:
        return self.what

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.facts())


_MISSPELT_MAX: Final = 200
"""Characters of a name; to compare long ones takes long, and a caller chooses how long."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` with the known word that is closest, or nothing when none is close.

    One that differs in case only is the closest of all.
    """
    if len(word) > _MISSPELT_MAX:
        return ""
    words = list(known)
    closest = [one for one in words if one.lower() == word.lower()]
    closest = closest or difflib.get_close_matches(word, words, n=1)
    return f'; did you mean "{closest[0]}"?' if closest else ""


def first_line(error: BaseException) -> str:
    """The first line of what another program's error says; its class where it says nothing."""
    if isinstance(error, KeyError) and error.args:  # it says the name alone, as Python writes it
        return f"it has no {error.args[0]}"
    return str(error).strip().partition("\n")[0] or type(error).__name__


class _Facts(dict[str, object]):
    """What the words of an error may name: its attributes, and private properties made from them."""

    def __init__(self, error: ThermoclineError) -> None:
        self._error = error

    def __missing__(self, name: str) -> object:
        value = getattr(self._error, name)
        return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else value


def listed(problems: tuple[str, ...]) -> str:
    """One problem on the line of its subject, more of them below it."""
    if len(problems) == 1:
        return f"a problem: {problems[0]}"
    return "\n".join([f"{len(problems)} problems:", *(f"  - {problem}" for problem in problems)])


class Listing:
    """For an error with several problems: ``{_problems}`` in its words lists them."""

    _listed: ClassVar[str] = "problems"

    @property
    def _problems(self) -> str:
        return listed(getattr(self, self._listed))


class Resumable:
    """For an error that a command resumes from, when the error's facts are repeated to it as tokens."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The facts, as the command wants to hear them."""
        raise NotImplementedError

    @property
    def resume(self) -> str:
        """The whole command."""
        raise NotImplementedError


class Misnaming:
    """For an error about a name that is none of those known: ``{_suggestion}`` ends its sentence."""

    _misnamed: ClassVar[str] = "table"
    known: tuple[str, ...]

    @property
    def _suggestion(self) -> str:
        return did_you_mean(getattr(self, self._misnamed), self.known) or "."


def _rebuild(cls: type[ThermoclineError], facts: dict[str, Any]) -> ThermoclineError:
    return cls(**facts)
