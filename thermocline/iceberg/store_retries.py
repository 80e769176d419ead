"""Retries of an object store that fails or is busy, or whose answer breaks off."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pyarrow.fs import AwsDefaultS3RetryStrategy

T = TypeVar("T")

# Of a read whose answer broke off: a store that does so four times in a row is not having an accident.
READS_MAX: Final = 4
# What Arrow says of an error whose text is longer than what was asked for: mostly of 503 to a small read.
# Its client does not repeat it; this is as patient as that is with others (46 s).
_HIDDEN: Final = "Failed to flush response stream"
HIDDEN_READS_MAX: Final = 15
_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 5.0
# Of a request; each pause is twice the one before, 51 s in all. S3 can answer 503 SlowDown for minutes.
RETRIES_MAX: Final = 11


def read_whole(read: Callable[[], T]) -> T:
    """What ``read`` gives; it is called again where the store's answer broke off, or an error did not fit.

    Arrow's client can't repeat these by itself: what came fills a part of its buffer already.
    Raises `OSError`.
    """
    reads, pause = 0, _PAUSE_SECONDS
    while True:
        reads += 1
        try:
            return read()
        except OSError as error:
            if error.errno is not None or isinstance(error, FileNotFoundError):  # this machine's, or missing
                raise
            if reads >= (HIDDEN_READS_MAX if _HIDDEN in str(error) else READS_MAX):
                raise
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)


class PatientRetries(AwsDefaultS3RetryStrategy):  # type: ignore[misc]  # it publishes no types
    """A doubling back-off; PyIceberg loads it by its name.

    Not Arrow's `AwsStandardS3RetryStrategy`, which gives each client a quota of 100 retries that no success
    fills up again: a process that lives for long would have none left.
    """

    def __init__(self) -> None:
        super().__init__(max_attempts=RETRIES_MAX)  # Arrow's name for it; the first attempt is not counted


class OneTry(AwsDefaultS3RetryStrategy):  # type: ignore[misc]  # it publishes no types
    """No second one, for who waits for the answer; PyIceberg loads it by its name."""

    def __init__(self) -> None:
        super().__init__(max_attempts=0)
