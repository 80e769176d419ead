"""What --at and --since take: a read point, a file that carries one, or a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thermocline.cli.read_points import read_point_of
from thermocline.errors import BadParameter
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam

POINT = ReadPoint(7, Seam({("t", 0): 5}), Seam({("t", 0): 9}))
HEADER = '{"snapshot_id":"7","seam":{"t":{"0":5}},"end":{"t":{"0":9}}}'
SCHEMA = pa.schema([("a", pa.int32())], metadata={"thermocline.read-point": HEADER})


def _arrow(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA):
        pass


def _parquet(path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), path)


def _answer(path: Path) -> None:
    path.write_text(json.dumps({"table": "t", "rows": [], "read_point": json.loads(HEADER)}, indent=2))


def _bare(path: Path) -> None:
    path.write_text(HEADER + "\n")


def point_of(text: str, has_server: bool = False) -> ReadPoint:
    return read_point_of("--at", text, lambda: SETTINGS, "t", has_server)


SETTINGS: Any = SimpleNamespace()


def _printed(path: Path) -> None:
    path.write_text(f"read point: {HEADER}\n")


@pytest.mark.parametrize("write", [_arrow, _parquet, _answer, _bare, _printed])
def test_a_file_that_carries_a_read_point_stands_for_it(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path / "file")
    assert point_of(str(tmp_path / "file")) == POINT


def test_a_read_point_may_stand_alone_or_in_an_answer() -> None:
    assert point_of(HEADER) == point_of(f"read point: {HEADER}") == POINT
    assert point_of('{"rows": [], "read_point": ' + HEADER + "}") == POINT


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ('"app_id"\r\n7\r\n', "carries no read point: extracts in Arrow and Parquet do"),
        ('{"a":1}\n{"a":2}\n', "carries no read point: extracts in Arrow and Parquet do"),
        ("PAR1 and no more", "carries no read point"),
        (None, "is no read point, no time in ISO 8601, and no file"),
    ],
)
def test_what_carries_none_is_refused_under_the_options_name(
    tmp_path: Path, content: str | None, what: str
) -> None:
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_text(content, newline="")
    with pytest.raises(BadParameter, match=what) as refused:
        point_of(str(path))
    assert refused.value.name == "--at"


def test_another_form_is_refused_under_the_options_name() -> None:
    with pytest.raises(BadParameter, match="it is not of the form") as refused:
        point_of('{"snapshot_id": 7}')
    assert refused.value.name == "--at"


@pytest.mark.parametrize(
    ("time", "snapshot"),
    [
        ("1970-01-01T00:00:02Z", 2),
        ("1970-01-01T01:00:02.999+01:00", 2),
        ("1970-01-01T00:00:03", 2),
        ("2026-01-01", 4),
    ],
)
def test_a_time_is_the_last_commit_at_or_before_it(
    monkeypatch: pytest.MonkeyPatch, time: str, snapshot: int
) -> None:
    """Method: commits at seconds 1 to 4, of which another program made the third."""
    _commits(monkeypatch)
    seam = Seam({("t", 0): snapshot})
    assert point_of(time) == ReadPoint(snapshot, seam, seam)


def test_a_time_before_the_tables_history_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _commits(monkeypatch)
    with pytest.raises(BadParameter, match=r"history, which begins at 1970-01-01T00:00:01\.000"):
        point_of("1970-01-01T00:00:00.999Z")
    with pytest.raises(BadParameter, match="with --url it takes a read point or a file"):
        point_of("2026-01-01", has_server=True)


def _commits(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [
        SimpleNamespace(
            snapshot_id=number,
            snapshot=SimpleNamespace(
                timestamp_ms=datetime(1970, 1, 1, 0, 0, number, tzinfo=UTC).timestamp() * 1000
            ),
            state=None if number == 3 else SimpleNamespace(seam=Seam({("t", 0): number})),
        )
        for number in (4, 3, 2, 1)
    ]
    monkeypatch.setattr("thermocline.iceberg.catalog.open_table", lambda *_: None)
    monkeypatch.setattr("thermocline.iceberg.lineage.links_back", lambda _: iter(links))
