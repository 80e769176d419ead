"""Values of ``--at`` and ``--since``: a read point, a file that carries one, or a time."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import BadParameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from thermocline.iceberg.lineage import Link
    from thermocline.rules.read_point import ReadPoint
    from thermocline.settings import Settings

FORMS: Final = "READ_POINT|FILE|TIME"
PRINTED: Final = "read point: "
"""What stands before a read point where a command prints it: people copy the line, or redirect stderr."""
_ANSWER_BYTES_MAX: Final = 64 << 20
"""Of a JSON answer: a batch of lookups has at most as many."""
_ARROW_STREAM: Final = b"\xff\xff\xff\xff"
_PARQUET: Final = b"PAR1"


def read_point_of(
    option: str, text: str, settings: Callable[[], Settings], name: str, has_server: bool
) -> ReadPoint:
    """The read point that an option's text stands for.

    The text is a read point or an answer as JSON, or the path of a file with one of these or of an extract in
    Arrow or Parquet. Or it is a time in ISO 8601: that of the last commit at or before it, and so the table
    as it was committed then.

    Raises:
        BadParameter: it is none of these, or the table's history does not reach back to that time.
    """
    stripped = text.strip().removeprefix(PRINTED).strip()
    if stripped.startswith("{"):
        return _of_json(option, stripped)
    if (time := _time(stripped)) is not None:
        if has_server:
            problem = "with --url it takes a read point or a file, not a time"
            raise BadParameter(name=option, problem=problem)
        return _committed_by(option, time, settings(), name)
    return _of_file(option, Path(text))


def _of_json(option: str, text: str) -> ReadPoint:
    from thermocline.rules.read_point import ReadPoint

    with suppress(ValueError, AttributeError, RecursionError):  # which `parse` says
        answer: Any = json.loads(text)
        text = json.dumps(answer.get("read_point", answer))
    try:
        return ReadPoint.parse(text)
    except BadParameter as error:
        raise BadParameter(name=option, problem=error.problem) from error


def _of_file(option: str, path: Path) -> ReadPoint:
    try:
        with path.open("rb") as file:
            head = file.read(len(_PARQUET))
            if head == _PARQUET:
                return _of_json(option, _of_parquet(path))
            if head == _ARROW_STREAM:
                return _of_json(option, _of_arrow(path))
            content = head + file.read(_ANSWER_BYTES_MAX)
    except FileNotFoundError:
        problem = f"{json.dumps(str(path)[:200])} is no read point, no time in ISO 8601, and no file"
        raise BadParameter(name=option, problem=problem) from None
    except OSError as error:
        raise BadParameter(name=option, problem=f"{path}: {error.strerror or error}") from error
    except (KeyError, ValueError) as error:  # Arrow's, of a file that is damaged, are the latter
        raise BadParameter(name=option, problem=f"{path} carries no read point") from error
    try:
        return _of_json(option, content.decode(errors="replace").strip().removeprefix(PRINTED))
    except BadParameter as error:
        problem = (
            f"{path} carries no read point: extracts in Arrow and Parquet do, and JSON answers; "
            "that of CSV and JSON lines was printed on stderr"
        )
        raise BadParameter(name=option, problem=problem) from error


def _of_parquet(path: Path) -> str:
    import pyarrow.parquet as pq

    from thermocline.serving.read.encode import READ_POINT_METADATA

    metadata = pq.read_schema(path).metadata or {}
    return str(metadata[READ_POINT_METADATA.encode()].decode())


def _of_arrow(path: Path) -> str:
    import pyarrow as pa

    from thermocline.serving.read.encode import READ_POINT_METADATA

    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        metadata = stream.schema.metadata or {}
    return str(metadata[READ_POINT_METADATA.encode()].decode())


def _time(text: str) -> datetime | None:
    """A time in ISO 8601, in UTC unless it says otherwise."""
    if not text[:4].isdigit() or "-" not in text[4:5]:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _committed_by(option: str, time: datetime, settings: Settings, name: str) -> ReadPoint:
    from thermocline.iceberg.catalog import open_table
    from thermocline.iceberg.lineage import links_back
    from thermocline.rules.read_point import ReadPoint

    limit_ms = time.timestamp() * 1000
    link: Link | None = None
    for link in links_back(open_table(settings, name)):
        if link.snapshot.timestamp_ms <= limit_ms and link.state is not None:
            return ReadPoint(link.snapshot_id, link.state.seam, link.state.seam)
    begin = "" if link is None else f", which begins at {_shown(link.snapshot.timestamp_ms)}"
    problem = f"{time.isoformat()} is before the table's history{begin}"
    raise BadParameter(name=option, problem=problem)


def _shown(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
