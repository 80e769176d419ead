"""The log's answers, remembered for as long as several tables are planned or committed by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from thermocline.kafka.log import Log

__all__ = ["asked_once"]


def asked_once(log: Log) -> Log:
    """The same log, which is asked each thing once: all who ask it again are told what the first one was.

    What it raises is asked again. It knows what was so when it was first asked: for another moment, take
    another one.
    """
    return cast("Log", _Remembered(log))


class _Remembered:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[tuple[Any, ...], Any] = {}

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._log, name)

        def answer(*asked: Any) -> Any:
            of = (name, *(tuple(one) if isinstance(one, list | tuple) else one for one in asked))
            if of not in self._known:
                self._known[of] = ask(*asked)
            return self._known[of]

        return answer
