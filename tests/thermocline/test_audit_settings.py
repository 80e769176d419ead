"""The settings of the audit log: what each sink needs, and where its files are."""

from __future__ import annotations

from pathlib import Path

import pytest

from thermocline.errors import ConfigInvalid
from thermocline.settings import AuditSettings, Settings, check_settings, load_settings

CONFIG = """
[kafka]
bootstrap_servers = "broker:9092"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[audit]
{audit}
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
dead_letter_topic = "letters"
[tables.profiles.columns]
id = "int"
"""


def loaded(folder: Path, audit: str) -> Settings:
    file = folder / "thermocline.toml"
    file.write_text(CONFIG.format(audit=audit))
    return load_settings(file)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    audit = loaded(tmp_path, "").audit
    assert (audit.sink, audit.required, audit.rotate_bytes, audit.keep_files) == ("off", False, 10**8, 10)
    assert audit.path == tmp_path / "data" / "audit"
    assert audit.hash_key_file == tmp_path / "data" / "audit-hash.key"


def test_its_folder_and_key_are_beside_the_file_that_names_them(tmp_path: Path) -> None:
    audit = loaded(tmp_path, 'sink = "file"\npath = "logs"\nhash_key_file = "/etc/own.key"').audit
    assert (audit.path, audit.hash_key_file) == (tmp_path / "logs", Path("/etc/own.key"))


def test_sizes_may_have_units(tmp_path: Path) -> None:
    assert loaded(tmp_path, 'rotate_bytes = "1GB"').audit.rotate_bytes == 10**9


@pytest.mark.parametrize(
    ("audit", "problem"),
    [
        ('sink = "kafka"', 'audit: sink = "kafka" needs audit.topic'),
        ("required = true", "audit: required = true needs a sink"),
        ('sink = "kafka"\ntopic = "a topic"', "audit.topic: "),
        ('sink = "syslog"', "audit.sink: must be 'off', 'file', 'stdout' or 'kafka'"),
        ("rotate_bytes = 999_999", "audit.rotate_bytes: "),
        ("keep_files = 0", "audit.keep_files: "),
        ("keep_file = 3", 'audit.keep_file: unknown name; did you mean "keep_files"?'),
    ],
)
def test_what_a_sink_cannot_work_with_is_named(tmp_path: Path, audit: str, problem: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(tmp_path, audit)
    assert [one[: len(problem)] for one in refused.value.problems] == [problem]


@pytest.mark.parametrize("topic", ["profiles", "letters"])
def test_the_topic_of_a_table_is_refused(tmp_path: Path, topic: str) -> None:
    """It would be read as rows."""
    with pytest.raises(ConfigInvalid) as refused:
        loaded(tmp_path, f'sink = "kafka"\ntopic = "{topic}"')
    assert refused.value.problems == (f'audit.topic: "{topic}" is a topic of tables.profiles already',)
    assert loaded(tmp_path, 'sink = "kafka"\ntopic = "audit"').audit.topic == "audit"


def test_folders_that_cannot_be_written_are_named_where_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    audit = f'path = "{tmp_path}/file/logs"\nhash_key_file = "{tmp_path}/file/audit.key"'
    loaded(tmp_path, audit)
    check_settings(tmp_path / "thermocline.toml")
    loaded(tmp_path, f'sink = "file"\n{audit}')
    with pytest.raises(ConfigInvalid) as refused:
        check_settings(tmp_path / "thermocline.toml")
    places = [problem.partition(":")[0] for problem in refused.value.problems]
    assert places == ["audit.path", "audit.hash_key_file"]


def test_nothing_of_it_can_be_set_that_is_not_bounded() -> None:
    with pytest.raises(ValueError, match="keep_files"):
        AuditSettings(keep_files=100_001)
