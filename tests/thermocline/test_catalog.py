"""What a catalog is asked with, and what becomes of what it raises."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import ServerError, UnauthorizedError

from thermocline.errors import CatalogUnreachable
from thermocline.iceberg.catalog import java_properties, load_table
from thermocline.settings import CatalogSettings
from thermocline.settings.model import PassThrough


def test_java_gives_up_on_a_postgresql_that_does_not_answer() -> None:
    settings = CatalogSettings(uri="postgresql://db.example/iceberg", warehouse="w")
    found = java_properties(settings)
    assert (found["jdbc.socketTimeout"], found["jdbc.tcpKeepAlive"]) == ("60", "true")


def test_a_users_own_properties_of_the_driver_win() -> None:
    own = PassThrough({"jdbc.socketTimeout": "5"})
    settings = CatalogSettings(uri="postgresql://db.example/iceberg", warehouse="w", properties=own)
    assert java_properties(settings)["jdbc.socketTimeout"] == "5"


def test_java_gets_credentials_as_they_are_not_as_a_url_spells_them() -> None:
    settings = CatalogSettings(uri="postgresql+psycopg://a%40b:p%2Fw%25d@db.example/iceberg", warehouse="w")
    found = java_properties(settings)
    assert (found["jdbc.user"], found["jdbc.password"]) == ("a@b", "p/w%d")
    assert found["uri"] == "jdbc:postgresql://db.example/iceberg"


class Away(InMemoryCatalog):
    """A catalog that raises what it is given."""

    error: Exception

    def load_table(self, identifier: object) -> None:  # type: ignore[override]
        raise self.error


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ServerError("500 on line 1\nline 2"), "500 on line 1"),
        (UnauthorizedError("401"), "401"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_whatever_a_catalog_that_is_away_raises_is_named(error: Exception, detail: str) -> None:
    catalog = Away("away")
    catalog.error = error
    with pytest.raises(CatalogUnreachable) as away:
        load_table(catalog, "profiles", "app.profiles")
    assert away.value.detail == detail
