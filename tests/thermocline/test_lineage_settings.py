"""The settings of lineage: none is sent by default, to a whole address, and a key over https alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from thermocline.errors import ConfigInvalid
from thermocline.settings import Settings, load_settings

CONFIG = """
[kafka]
bootstrap_servers = "broker:9092"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[lineage]
{lineage}
"""
URL = 'url = "https://collector/api/v1/lineage"'


def loaded(folder: Path, *lineage: str) -> Settings:
    file = folder / "thermocline.toml"
    file.write_text(CONFIG.format(lineage="\n".join(lineage)))
    return load_settings(file)


def problem_of(folder: Path, *lineage: str) -> str:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(folder, *lineage)
    (problem,) = refused.value.problems
    return problem


def test_no_lineage_is_sent_by_default(tmp_path: Path) -> None:
    lineage = loaded(tmp_path).lineage
    assert (lineage.url, lineage.key, lineage.namespace) == ("", None, "thermocline")


def test_the_address_is_the_whole_one(tmp_path: Path) -> None:
    assert loaded(tmp_path, URL).lineage.url == "https://collector/api/v1/lineage"
    for url in ("http://collector:5000", "http://collector:5000/"):
        assert problem_of(tmp_path, f'url = "{url}"') == (
            "lineage: lineage.url is the whole address that events are posted to, such as "
            "http://collector:5000/api/v1/lineage"
        )


@pytest.mark.parametrize(
    "url", ["collector/api", "ftp://collector/api", "http://me:pw@collector/api", "http:///x"]
)
def test_what_is_no_address_is_refused(tmp_path: Path, url: str) -> None:
    assert problem_of(tmp_path, f'url = "{url}"').startswith("lineage.url: ")


def test_a_key_is_sent_over_https_only_and_never_shown(tmp_path: Path) -> None:
    settings = loaded(tmp_path, URL, 'key = "s3cret-key"')
    assert settings.lineage.key is not None
    assert settings.lineage.key.get_secret_value() == "s3cret-key"
    assert "s3cret-key" not in repr(settings)
    assert "s3cret-key" in set(settings.secrets())
    problem = problem_of(tmp_path, URL.replace("https", "http"), 'key = "s3cret-key"')
    assert problem == "lineage: a key is sent over https only: correct lineage.url, or leave it out"


def test_a_key_may_stand_in_a_file_that_a_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    monkeypatch.setenv("THERMOCLINE_LINEAGE__KEY_FILE", "key")
    key = loaded(tmp_path, URL).lineage.key
    assert key is not None
    assert key.get_secret_value() == "from-a-file"


def test_a_file_of_certificates_is_found_beside_the_configuration(tmp_path: Path) -> None:
    assert loaded(tmp_path, URL, 'ca_file = "ca.pem"').lineage.ca_file == tmp_path / "ca.pem"
