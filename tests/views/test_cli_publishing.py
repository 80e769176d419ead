"""Views beside the commands that change a table: no failure of theirs is one of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from thermocline.cli.publishing import drop_with_table, publish_once, published
from thermocline.errors import TopicMissing, TrinoRefused
from thermocline.process.metrics import REGISTRY
from thermocline.settings import CatalogSettings, KafkaSettings, Settings, TableSettings, ViewsSettings
from thermocline.views.publication import Publication
from thermocline.views.publish import PublishRound


def settings_of(folder: Path, enabled: bool) -> Settings:
    """Nothing of what they name is there."""
    return Settings(
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        catalog=CatalogSettings(uri=f"sqlite:///{folder / 'missing.db'}", warehouse=str(folder)),
        views=ViewsSettings(enabled=enabled, url="http://127.0.0.1:1"),
        tables={
            "lost": TableSettings(identifier="app.lost", topics=("lost",), key=("id",), columns={"id": "int"})
        },
    )


def failures() -> float:
    labels = {"table": "lost", "code": "catalog-unreachable"}
    return REGISTRY.get_sample_value("thermocline_view_failures_total", labels) or 0.0


def test_ingest_goes_on_where_nothing_answers(tmp_path: Path) -> None:
    before = failures()
    with published(settings_of(tmp_path, enabled=True), "lost") as wake:
        wake()
    assert failures() > before


def test_the_error_that_ends_ingest_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), published(settings_of(tmp_path, enabled=True), "lost"):
        raise ZeroDivisionError


def test_what_was_not_done_is_said_with_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(tmp_path, enabled=True)
    publish_once(settings, "lost")
    drop_with_table(settings, "lost")
    said = capsys.readouterr().err
    assert "thermocline views publish lost" in said
    assert "thermocline views drop lost" in said


def test_views_that_were_withdrawn_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = TopicMissing(topic="lost", bootstrap_servers="127.0.0.1:1")
    monkeypatch.setattr(Publication, "__call__", lambda _: PublishRound(1, stop=stop))
    publish_once(settings_of(tmp_path, enabled=True), "lost")
    assert "[topic-missing]" in capsys.readouterr().err


def test_views_of_a_live_table_wait_for_the_server_that_has_to_take_up_the_alteration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, enabled=True)
    of_server = settings.model_copy(update={"views": settings.views.model_copy(update={"hot": "server"})})
    refused = TrinoRefused(url="http://127.0.0.1:1", name="COLUMN_NOT_FOUND", detail="no column note")
    answers: list[TrinoRefused | None] = []

    def publish(_: Publication) -> PublishRound:
        if (answer := answers.pop(0)) is not None:
            raise answer
        return PublishRound(1)

    monkeypatch.setattr(Publication, "__call__", publish)
    monkeypatch.setattr("thermocline.cli.publishing.LOOK_SECONDS", 0.0)
    answers += [refused, refused, None]
    publish_once(of_server, "lost")
    assert (answers, capsys.readouterr().err) == ([], "")
    answers += [refused, None]
    publish_once(settings, "lost")
    assert len(answers) == 1, "those of Kafka need no server"
    assert "no column note" in capsys.readouterr().err


def test_nobody_is_asked_where_views_are_not_enabled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(tmp_path, enabled=False)
    before = failures()
    with published(settings, "lost") as wake:
        wake()
    publish_once(settings, "lost")
    drop_with_table(settings, "lost")
    assert failures() == before
    assert capsys.readouterr().err == ""
