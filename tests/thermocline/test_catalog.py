"""What becomes of what a catalog raises."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import ServerError, UnauthorizedError

from thermocline.errors import CatalogUnreachable, DependencyMissing
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.settings import CatalogSettings


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


def test_a_catalog_whose_package_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(DependencyMissing) as missing:
        open_catalog(CatalogSettings(type="hive", uri="thrift://127.0.0.1:9", warehouse="s3://b/w"))
    assert "pyiceberg[hive]" in missing.value.next
