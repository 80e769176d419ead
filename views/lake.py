"""Our catalog as one of Trino's: its properties, with secrets apart."""

from __future__ import annotations

from thermocline.iceberg.catalog_properties import trino_properties
from thermocline.settings import CatalogSettings
from thermocline.views.properties import Translation, variable_of


def lake_properties(settings: CatalogSettings, catalog: str) -> Translation:
    """Gives the catalog's properties file, with secrets named by the Trino catalog that they belong to."""
    theirs = trino_properties(settings)
    done = Translation(plain=dict(theirs.values), left_out=theirs.left_out)
    for name in theirs.secrets & theirs.values.keys():
        variable = variable_of(catalog, name)
        done.plain[name] = f"${{ENV:{variable}}}"  # safety: trino-secrets
        done.secrets[variable] = theirs.values[name]
    return done
