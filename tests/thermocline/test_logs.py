"""Log lines: one each, a constant phrase, and the data beside it."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from uuid import UUID

import pytest

from thermocline.process import logs
from thermocline.process.logs import fields
from thermocline.process.masking import remember
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import encode_one, named_columns
from thermocline.rules.seam import Seam
from thermocline.text.typed import typed

ROOT = Path(__file__).parents[2]
DEFINITION = LiveTable.build(
    name="t",
    identifier="a.t",
    topics=["t"],
    key=["app_id", "user_id", "token"],
    columns={"app_id": "int", "user_id": "string", "token": "binary"},
)

log = logging.getLogger("thermocline.example")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


def test_a_json_line_holds_the_message_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", json=True)
    log.info("batch committed", extra=fields(table="profiles", snapshot_id=7, at=("profiles", 3)))
    line = json.loads(capsys.readouterr().err)
    assert line["message"] == "batch committed"
    assert (line["level"], line["logger"]) == ("INFO", "thermocline.example")
    assert (line["table"], line["snapshot_id"], line["at"]) == ("profiles", 7, ["profiles", 3])


def test_a_plain_message_is_one_line_whatever_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    log.info("batch rejected", extra=fields(detail="two\nlines", rows=3))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith('INFO thermocline.example: batch rejected  detail="two lines" rows=3\n')
    assert err.count("\n") == 1


class Kind(StrEnum):
    OPEN = "open"


@pytest.mark.parametrize(
    ("value", "shown", "plain"),
    [
        (None, None, "null"),
        (True, True, "true"),
        (7, 7, "7"),
        (0.5, 0.5, "0.5"),
        (float("inf"), "inf", "inf"),
        ("profiles", "profiles", "profiles"),
        ("", "", '""'),
        ('a "word"', 'a "word"', r'"a \"word\""'),
        ('"', '"', r'"\""'),
        ("null", "null", '"null"'),
        ("7", "7", '"7"'),
        (Kind.OPEN, "open", "open"),
        (("a", 1, None), ["a", 1, None], '["a", 1, null]'),
        ({"t": {"0": (1, "x")}}, {"t": {"0": [1, "x"]}}, '{"t": {"0": [1, "x"]}}'),
        ({("t", 0): 5}, {"t/0": 5}, '{"t/0": 5}'),
        (frozenset({"b", "a"}), ["a", "b"], '["a", "b"]'),
        (b"\x80\x00", "gAA=", '"gAA="'),
        (Path("/a b"), "/a b", '"/a b"'),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"),
        (date(2026, 1, 2), "2026-01-02", "2026-01-02"),
        (Decimal("1.50"), "1.50", '"1.50"'),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007", "00000000-0000-0000-0000-000000000007"),
        (Seam.of({"orders": {0: 5, 1: 7}}), "orders/0@5, orders/1@7", '"orders/0@5, orders/1@7"'),
        (Seam.of({"orders": {0: 5}}), "orders/0@5", "orders/0@5"),
        (ValueError("bad"), "bad", "bad"),
    ],
)
def test_a_field_is_json_in_both_forms_and_never_what_python_writes(
    capsys: pytest.CaptureFixture[str], value: object, shown: object, plain: str
) -> None:
    logs.configure("info", json=True)
    log.info("said", extra=fields(value=value))
    line = json.loads(capsys.readouterr().err)
    assert (line["value"], type(line["value"])) == (shown, type(shown))
    logs.configure("info")
    log.info("said", extra=fields(value=value, after=1))
    assert capsys.readouterr().err.endswith(f": said  value={plain} after=1\n")


def test_a_key_is_shown_by_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    key = named_columns(DEFINITION, encode_one(DEFINITION, [7, "ada", b"\x80"]))
    logs.configure("info", json=True)
    log.info("said", extra=fields(example=key))
    assert json.loads(capsys.readouterr().err)["example"] == {"app_id": 7, "user_id": "ada", "token": "gA=="}
    logs.configure("info")
    log.info("said", extra=fields(example=key))
    assert capsys.readouterr().err.endswith('example=(app_id=7, user_id="ada", token="gA==")\n')


def test_the_command_that_a_log_names_runs_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with typed(["--config", "c.toml", "ingest", "run", "t"]):
        logs.configure("info", json=True)
        log.info("stopped", extra=fields(next="thermocline ingest run t", detail="thermocline ingest run t"))
    line = json.loads(capsys.readouterr().err)
    assert line["next"] == "thermocline --config c.toml ingest run t"
    assert line["detail"] == "thermocline ingest run t"


def test_no_message_is_made_of_what_python_writes() -> None:
    """Goal: no ``!r`` words a message; ``thermocline.text.shown`` alone says how a value is shown."""
    found = []
    for room in ("thermocline", "cli", "doctor", "ingest", "serving", "verify", "views"):
        for file in sorted((ROOT / room).rglob("*.py")):
            text = file.read_text()
            if "!r" not in text:
                continue
            tree = ast.parse(text)
            own = [
                one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == "__repr__"
            ]
            excepted = {id(part) for one in own for part in ast.walk(one)}
            found += [
                f"{file.relative_to(ROOT)}:{one.lineno}"
                for one in ast.walk(tree)
                if isinstance(one, ast.FormattedValue)
                and one.conversion == ord("r")
                and id(one) not in excepted
            ]
    assert found == []


def test_nothing_below_the_level_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning")
    log.info("not seen")
    log.warning("seen")
    assert "not seen" not in (err := capsys.readouterr().err)
    assert "seen" in err


def test_a_web_server_does_not_announce_itself(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").warning("a warning")
    err = capsys.readouterr().err
    assert "Started" not in err
    assert "a warning" in err


def test_an_exception_brings_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", json=True)
    log.debug("where it came from", exc_info=ValueError("of the test"))
    assert "ValueError: of the test" in json.loads(capsys.readouterr().err)["traceback"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("thermocline table create t", "thermocline table create t"),
        ("ask again in a moment; thermocline status shows how far it is", "whole"),
        ("rm -r /var/lib/thermocline/t", "rm -r /var/lib/thermocline/t"),
        ("check [registry], and that the registry answers; ingest and serve retry by themselves", None),
        ("upgrade Thermocline here", None),
        ("", None),
    ],
)
def test_what_to_do_next_is_a_command_in_a_log_or_is_left_out(
    capsys: pytest.CaptureFixture[str], given: str, shown: str | None
) -> None:
    logs.configure("info", json=True)
    log.info("stopped", extra=fields(table="t", next=given))
    line = json.loads(capsys.readouterr().err)
    assert line.get("next") == (given if shown == "whole" else shown)
    assert line["table"] == "t"


@pytest.mark.parametrize("json_", [False, True])
def test_no_secret_of_the_settings_is_in_a_line(capsys: pytest.CaptureFixture[str], json_: bool) -> None:
    """Goal: whatever puts it there, message, field, what is within a field, or traceback."""
    canary = "canary-7f3a"
    remember([canary])
    logs.configure("info", json=json_)
    try:
        int(canary)
    except ValueError:
        log.exception(f"said {canary}", extra=fields(detail=canary, all=[{"x": f"a {canary}"}]))  # noqa: G004
    printed = capsys.readouterr().err
    assert "7f3a" not in printed
    assert printed.count("****") == 4


@pytest.mark.parametrize("json_", [False, True])
def test_what_libraries_say_is_logged_without_what_they_call_a_secret(
    capsys: pytest.CaptureFixture[str], json_: bool
) -> None:
    logs.configure("info", json=json_)
    logging.getLogger("library").warning("properties %s", {"s3.secret-access-key": "canary", "region": "x"})
    printed = capsys.readouterr().err
    assert "properties {'s3.secret-access-key': ****, 'region': 'x'}" in printed


def test_what_we_say_of_a_setting_is_not_taken_for_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    log.warning("refused", extra=fields(detail="registry.password: needs a user"))
    assert capsys.readouterr().err.endswith('refused  detail="registry.password: needs a user"\n')
