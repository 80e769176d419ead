"""Live views that read hot rows from the server: their text, and what Trino is given for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.views.test_config import SETTINGS, properties
from tests.views.test_render import EVENTS, plan, window, without_comments
from tests.views.test_row_filter import FILTER
from thermocline.errors import ConfigInvalid
from thermocline.rules.definition import LiveTable
from thermocline.rules.hot_columns import group_of
from thermocline.settings import ServingSettings, Settings, ViewsSettings
from thermocline.settings.model import TrinoEndpointSettings
from thermocline.views.config import trino_files
from thermocline.views.plan import modes_of
from thermocline.views.render import Mode, query

NARROW = LiveTable.build(
    name="profiles",
    identifier="app.profiles",
    topics=["profiles"],
    key=["id"],
    columns={"id": "int", "At": "timestamptz", "price": "decimal(9, 2)"},
)
LIVE = """\
SELECT cold."id", cold."At", cold."price"
FROM "lake"."app"."profiles" FOR VERSION AS OF 8123456789 AS cold
LEFT JOIN (
  SELECT
    "id" AS "id",
    true AS _is_mentioned
  FROM "hot"."live"."profiles_d1"
  WHERE h_snapshot = 8123456789 AND h_scans = 2 AND h_servers = 0
    AND h_asked = CAST(to_unixtime(current_timestamp(6)) * 1e6 AS bigint)
) AS hot
  ON hot."id" = cold."id"
WHERE hot._is_mentioned IS NULL
UNION ALL
SELECT
  "id" AS "id",
  CAST(from_unixtime_nanos(CAST("h_c1" AS decimal(38, 0)) * 1000) AS timestamp(6) with time zone) AS "At",
  CAST("price" AS decimal(9, 2)) AS "price"
FROM "hot"."live"."profiles_d1"
WHERE h_snapshot = 8123456789 AND h_scans = 2 AND h_servers = 0
  AND h_asked = CAST(to_unixtime(current_timestamp(6)) * 1e6 AS bigint) AND NOT h_deleted"""


def served(mode: Mode, definition: LiveTable = NARROW, **options: Any) -> str:
    return query(plan(mode, window(), definition, server="hot", **options))


def test_the_live_view_takes_both_of_its_scans_from_one_state() -> None:
    assert without_comments(served(Mode.LIVE)) == LIVE


def test_a_view_names_the_servers_that_answer_it_together() -> None:
    for mode in (Mode.LIVE, Mode.LIVE_BY_KEY):
        text = served(mode, servers=group_of(["b:1", "a:1"]))
        assert text.count(f"h_servers = {group_of(['a:1', 'b:1'])}") == text.count("h_scans") > 0


def test_the_view_by_key_and_that_of_a_table_without_a_key_read_hot_rows_once() -> None:
    for text in (served(Mode.LIVE_BY_KEY), served(Mode.LIVE, EVENTS)):
        assert text.count("h_scans = 1") == text.count('"hot"."live"') == text.count("h_asked") == 1


@pytest.mark.parametrize(
    ("mode", "price"),
    [
        (Mode.LIVE, 'if(hot.h_k2, cold."price", hot."price") AS "price"'),
        (
            Mode.LIVE_BY_KEY,
            'if(h_k2, lead("price") OVER (PARTITION BY "id" ORDER BY _is_hot DESC), "price") AS "price"',
        ),
    ],
)
def test_columns_that_no_hot_record_sets_are_those_of_the_cold_row(mode: Mode, price: str) -> None:
    assert price in served(mode, replace(NARROW, partial_updates=True))
    assert "h_k" not in served(mode)


@pytest.mark.parametrize("mode", [Mode.LIVE, Mode.LIVE_BY_KEY])
def test_the_row_filter_is_the_last_thing_that_a_served_view_does(mode: Mode) -> None:
    assert served(mode, row_filter=FILTER).endswith(f"\n)\nWHERE ({FILTER}\n)")


def test_tables_that_sql_can_not_read_have_live_views_where_the_server_gives_their_rows() -> None:
    table = SETTINGS.table("profiles")
    avro = replace(NARROW, envelope="debezium")
    assert list(modes_of(table, avro)) == [Mode.COLD]
    assert set(modes_of(table, avro, "server")) == {Mode.LIVE, Mode.LIVE_BY_KEY, Mode.COLD}
    partial = replace(NARROW, partial_updates=True)
    assert set(modes_of(table, partial, "server")) == {Mode.LIVE, Mode.LIVE_BY_KEY, Mode.COLD}


def settings(**views: Any) -> Settings:
    serving = ServingSettings(trino=TrinoEndpointSettings(port=9100))
    return SETTINGS.model_copy(update={"views": ViewsSettings(hot="server", **views), "serving": serving})


def test_trino_gets_a_catalog_on_the_endpoint_that_the_publisher_alone_may_read() -> None:
    files = trino_files(settings()).files
    catalog = properties(files["catalog/hot.properties"])
    assert catalog["trino.thrift.client.addresses"] == "127.0.0.1:9100"
    assert catalog["trino.thrift.client.transport"] == "FRAMED"
    rules = json.loads(files["access-control.json"])
    readers = [rule.get("user") for rule in rules["tables"] if rule.get("catalog") == "hot"]
    assert readers == ["thermocline"]
    users = [rule.get("user") for rule in rules["catalogs"] if "hot" in rule.get("catalog", "")]
    assert users == ["thermocline"]
    elsewhere = trino_files(settings(server="h2", server_address="server:1")).files
    other = properties(elsewhere["catalog/h2.properties"])
    assert other["trino.thrift.client.addresses"] == "server:1"
    several = ServingSettings(trino=TrinoEndpointSettings(servers=("a:1", "b:2")))
    of_both = trino_files(settings().model_copy(update={"serving": several})).files
    assert properties(of_both["catalog/hot.properties"])["trino.thrift.client.addresses"] == "a:1,b:2"
    assert "catalog/hot.properties" not in trino_files(SETTINGS).files


def test_an_endpoint_without_a_port_is_named() -> None:
    without = SETTINGS.model_copy(update={"views": ViewsSettings(hot="server")})
    with pytest.raises(ConfigInvalid, match=r"serving\.trino\.port"):
        trino_files(without)


def test_an_endpoint_with_tls_is_asked_with_a_certificate() -> None:
    catalog = properties(
        trino_files(settings(server_ca_file="etc/ca.pem", server_key_file="etc/trino.pem")).files[
            "catalog/hot.properties"
        ]
    )
    said = {name: value for name, value in catalog.items() if ".ssl." in name}
    assert said == {
        "trino.thrift.client.ssl.enabled": "true",
        "trino.thrift.client.ssl.trust-certificate": "etc/ca.pem",
        "trino.thrift.client.ssl.key": "etc/trino.pem",
    }


def test_an_endpoint_with_tls_is_not_asked_without_it() -> None:
    file = Path("server.pem")
    endpoint = TrinoEndpointSettings(port=9100, certificate_file=file, key_file=file, client_ca_file=file)
    with_tls = settings().model_copy(update={"serving": ServingSettings(trino=endpoint)})
    with pytest.raises(ConfigInvalid, match=r"views\.server_ca_file"):
        trino_files(with_tls)
