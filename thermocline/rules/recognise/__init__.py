"""Recognition: a definition proposed for a topic by some of its records. Values in, values out.

``records`` has what is handed in; ``parts`` tells the format of keys and values by their bytes; ``values``
their envelope and their fields, whose types come from what was seen (``shapes``) or from the schemas of their
writers (``schema_fields``, ``message_fields``, ``json_schema_fields``), of which there may be no record yet
(``declared``); ``key`` what identifies a row. ``proposal`` puts a definition together, ``unknown`` says what
the records don't tell, and ``reading`` reads them by it, as ingest will.
"""

from __future__ import annotations

from thermocline.rules.recognise.declared import PLAIN_KEYS, DeclaredSchema
from thermocline.rules.recognise.proposal import (
    LeftOut,
    Proposal,
    ProposedColumn,
    proposed,
    proposed_by_declared,
    proposed_by_schemas,
    seem_to_name_schemas,
    wanted_schemas,
)
from thermocline.rules.recognise.reading import Reading, read_by
from thermocline.rules.recognise.records import SampledRecord, Topic
from thermocline.rules.recognise.values import Unrecognised

__all__ = [
    "PLAIN_KEYS",
    "DeclaredSchema",
    "LeftOut",
    "Proposal",
    "ProposedColumn",
    "Reading",
    "SampledRecord",
    "Topic",
    "Unrecognised",
    "proposed",
    "proposed_by_declared",
    "proposed_by_schemas",
    "read_by",
    "seem_to_name_schemas",
    "wanted_schemas",
]
