"""A record's headers, as whoever decodes it asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["HeadersOf", "HeadersUnreadable", "last_header", "no_headers"]

HeadersOf = Callable[[int], Sequence[tuple[str, bytes | None]] | None]
"""The headers of the record with an index, in order; asked only where a column comes from one."""


class HeadersUnreadable(ValueError):
    """The name of one of a record's headers is not UTF-8, and so none of them can be read."""

    def __init__(self) -> None:
        super().__init__("the name of a header is not UTF-8")


def last_header(headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> bytes | None:
    """The last value of that name; None where there is none."""
    return next((value for one, value in reversed(headers or ()) if one == name), None)


def no_headers(_: int) -> None:
    """Of records that have none, or of which none count."""
