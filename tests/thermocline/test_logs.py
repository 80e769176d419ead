"""Log lines: one each, a constant phrase, and the data beside it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from thermocline import logs
from thermocline.logs import fields

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
