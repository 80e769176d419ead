"""The command around SQL: how results are written, and the prompt."""

from __future__ import annotations

from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from thermocline.cli.file_format import Format
from thermocline.cli.sql_formats import ENCODERS, encode_csv, encode_json_lines
from thermocline.cli.sql_prompt import is_complete, prompt
from thermocline.errors import SqlRefused

COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(['say "hi", then go', None]),
    "number": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
    "coins": pa.array([Decimal("1E-18"), None], pa.decimal128(28, 18)),
    "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    "hour": pa.array([time(1, 2, 3), None], pa.time64("us")),
    "raw": pa.array([b"\x00\xff", None]),
    "ok": pa.array([True, None]),
    "lasts": pa.array([pa.scalar((1, 2, 3_500_000_000), pa.month_day_nano_interval()), None]),
    "place": pa.array([{"city": "Ulm", "fee": Decimal("0E-8")}, None]),
    "tags": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
}


def test_values_in_csv_and_json_lines_look_as_in_a_lookup() -> None:
    batch = pa.record_batch(COLUMNS)
    written = b"".join(map(bytes, encode_csv(batch.schema, [batch]))).decode()
    assert written == (
        "text,number,coins,at,hour,raw,ok,lasts,place,tags\n"
        '"say ""hi"", then go",1.50,0.000000000000000001,'
        "2026-01-02T03:04:05.000600Z,01:02:03,AP8=,true,P1M2DT3.5S,"
        '"{""city"": ""Ulm"", ""fee"": ""0.00000000""}","{""a"": 1}"\n'
        ",,,,,,,,,\n"
    )
    lines = b"".join(map(bytes, encode_json_lines(batch.schema, [batch]))).decode().splitlines()
    assert lines[0] == (
        '{"text": "say \\"hi\\", then go", "number": "1.50", "coins": "0.000000000000000001", '
        '"at": "2026-01-02T03:04:05.000600Z", '
        '"hour": "01:02:03", "raw": "AP8=", "ok": true, "lasts": "P1M2DT3.5S", '
        '"place": {"city": "Ulm", "fee": "0.00000000"}, '
        '"tags": {"a": 1}}'
    )
    assert lines[1].count("null") == len(COLUMNS)


@pytest.mark.parametrize(
    ("format_name", "column"),
    [
        (Format.CSV, pa.array([2**31 - 1], pa.date32())),
        (Format.JSONL, pa.array([2**63 - 1], pa.timestamp("us"))),
        (Format.CSV, pa.array([[([1], "a")]], pa.map_(pa.list_(pa.int64()), pa.string()))),
        (Format.PARQUET, COLUMNS["lasts"]),
    ],
)
def test_what_a_format_has_no_form_for_is_refused_with_the_way_out(
    format_name: Format, column: pa.Array
) -> None:
    batch = pa.record_batch({"far": column})
    with pytest.raises(SqlRefused, match=r"column.* can't be written .*: cast it to VARCHAR"):
        list(ENCODERS[format_name](batch.schema, [batch]))


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("", True),
        (".tables", True),
        ("select 1", False),
        ("select 1;  ", True),
        ("select ';", False),
        ("select 'it''s';", True),
        ('select ";" from t', False),
        ('select ";" from t;', True),
        ("select 1 -- it's one\n;", True),
        ("select 1; -- done", True),
        ("select 1 -- not yet;", False),
        ("select '--';", True),
        ("select 1 /* it's; */", False),
        ("select 1; /* it's\none */", True),
        ("select 1; /* open", True),
    ],
)
def test_enter_ends_what_is_complete(text: str, ends: bool) -> None:
    assert is_complete(text) is ends


def test_the_prompt_takes_statements_over_lines_until_it_is_quit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run: list[tuple[bool, str]] = []
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        typed.send_text("select\r1;\r.tables\r\r\\x\rselect 2;\r.quit\rselect 3;\r")
        prompt(["plans", "profiles"], lambda *one: run.append(one), is_vertical=False)
    assert run == [(False, "select\n1;"), (True, "select 2;")]
    assert "plans\nprofiles" in capsys.readouterr().err
    assert "+select\n+1;" in (tmp_path / "thermocline" / "sql_history").read_text()


@pytest.mark.parametrize("in_the_way", ["thermocline", "thermocline/sql_history/a folder"])
def test_the_prompt_needs_no_home_that_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, in_the_way: str
) -> None:
    """Method: a file where a folder has to be, or a folder in place of the history."""
    (tmp_path / in_the_way).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / in_the_way).touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run: list[tuple[bool, str]] = []
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        typed.send_text("select 1;\r.quit\r")
        prompt([], lambda *one: run.append(one), is_vertical=True)
    assert run == [(True, "select 1;")]
