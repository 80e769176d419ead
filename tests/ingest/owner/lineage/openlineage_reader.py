"""Reads events by OpenLineage's own Python client, and writes them again; run by the Python that has it.

Standard input is a JSON list of RunEvents. Each is made of the client's classes, which check it and refuse
what they do not know; standard output is what they say of it. Custom facets are added as the client adds any.
"""

import json
import sys
from typing import Any

from openlineage.client import event_v2, facet_v2
from openlineage.client.generated.base import BaseFacet, InputDatasetFacet, OutputDatasetFacet
from openlineage.client.serde import Serde

FACETS = {
    "jobType": facet_v2.job_type_job.JobTypeJobFacet,
    "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
    "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "dataSource": facet_v2.datasource_dataset.DatasourceDatasetFacet,
    "storage": facet_v2.storage_dataset.StorageDatasetFacet,
    "catalog": facet_v2.catalog_dataset.CatalogDatasetFacet,
    "symlinks": facet_v2.symlinks_dataset.SymlinksDatasetFacet,
    "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
    "inputStatistics": facet_v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}
CUSTOM = {"thermocline_offsets": InputDatasetFacet, "thermocline_commit": OutputDatasetFacet}


def fields_of(fields: list[dict[str, Any]]) -> list[Any]:
    of = facet_v2.schema_dataset.SchemaDatasetFacetFields
    return [of(**{**one, "fields": fields_of(one.get("fields", []))}) for one in fields]


def facets_of(facets: dict[str, dict[str, Any]]) -> dict[str, BaseFacet]:
    made: dict[str, BaseFacet] = {}
    for name, facet in facets.items():
        content = {key: value for key, value in facet.items() if not key.startswith("_")}
        if name in CUSTOM:
            made[name] = CUSTOM[name]().with_additional_properties(**content)
            made[name]._schemaURL = facet["_schemaURL"]  # which the client has for its own alone
            continue
        if name == "schema":
            content["fields"] = fields_of(content["fields"])
        if name == "symlinks":
            of = facet_v2.symlinks_dataset.Identifier
            content["identifiers"] = [of(**one) for one in content["identifiers"]]
        made[name] = FACETS[name](**content)
    return made


def dataset(of: Any, found: dict[str, Any], own: str) -> Any:
    own_facets = {own: facets_of(found[own])} if own in found else {}
    assert found.keys() <= {"namespace", "name", "facets", own}
    return of(
        namespace=found["namespace"], name=found["name"], facets=facets_of(found["facets"]), **own_facets
    )


def read(event: dict[str, Any]) -> event_v2.RunEvent:
    event_v2.set_producer(event["producer"])
    job, run = event["job"], event["run"]
    assert event.keys() == {
        *("eventType", "eventTime", "producer", "schemaURL", "run", "job", "inputs", "outputs")
    }
    return event_v2.RunEvent(
        eventType=event_v2.RunState(event["eventType"]),
        eventTime=event["eventTime"],
        run=event_v2.Run(runId=run["runId"], facets=facets_of(run["facets"])),
        job=event_v2.Job(job["namespace"], job["name"], facets=facets_of(job["facets"])),
        inputs=[dataset(event_v2.InputDataset, one, "inputFacets") for one in event["inputs"]],
        outputs=[dataset(event_v2.OutputDataset, one, "outputFacets") for one in event["outputs"]],
    )


if __name__ == "__main__":
    json.dump([Serde.to_dict(read(event)) for event in json.load(sys.stdin)], sys.stdout)
