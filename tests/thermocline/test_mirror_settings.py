"""The setting of the consumer group that mirrors seams: a group for each table, and only names of groups."""

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
[ingest]
{ingest}
"""
TABLE = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{name}"]
key = ["id"]
[tables.{name}.columns]
id = "int"
"""


def loaded(folder: Path, ingest: str, *tables: str) -> Settings:
    file = folder / "thermocline.toml"
    file.write_text(CONFIG.format(ingest=ingest) + "".join(TABLE.format(name=name) for name in tables))
    return load_settings(file)


def test_there_is_none_by_default(tmp_path: Path) -> None:
    assert loaded(tmp_path, "", "orders").ingest.group_of("orders") == ""


def test_each_table_has_a_group_by_its_name(tmp_path: Path) -> None:
    ingest = loaded(tmp_path, 'mirror_group = "lake.{table}-seam"', "orders", "users").ingest
    assert [ingest.group_of(table) for table in ("orders", "users")] == [
        "lake.orders-seam",
        "lake.users-seam",
    ]


def test_one_group_for_several_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(tmp_path, 'mirror_group = "lake"', "orders", "users")
    (problem,) = refused.value.problems
    assert problem == (
        'ingest.mirror_group: "lake" would be one group for 2 tables: put {table} into it, such as '
        '"lake-{table}"'
    )
    assert loaded(tmp_path, 'mirror_group = "lake"', "orders").ingest.group_of("orders") == "lake"


@pytest.mark.parametrize("group", ["a group", "lake-{tabel}", "lake-{}", "x" * 181])
def test_what_is_no_name_of_a_group_is_refused(tmp_path: Path, group: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(tmp_path, f'mirror_group = "{group}"', "orders")
    (problem,) = refused.value.problems
    assert problem.startswith("ingest.mirror_group: ")
