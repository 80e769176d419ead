"""The README that stands beside the files for Trino: where they go, and what is still to be done by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thermocline.views.access import Names
from thermocline.views.limits import LIVE_TAG
from thermocline.views.topics import SCHEMA, table_name


def guide(names: Names, topics: Iterable[str], secrets: Iterable[str], left_out: Mapping[str, str]) -> str:
    """Gives its text."""
    return _TEXT.format(
        lake=names.lake,
        kafka=names.kafka,
        server=_LIVE.format(live=names.live) if names.live else "",
        publisher=names.publisher,
        tag=LIVE_TAG,
        topics=_listed(f"`{names.kafka}.{SCHEMA}.{table_name(topic)}`: topic `{topic}`" for topic in topics),
        secrets=_listed(f"`{name}`" for name in sorted(secrets)),
        left_out=_listed(f"`{name}`: {reason}" for name, reason in sorted(left_out.items())),
    )


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "- none"


_LIVE = "| `catalog/{live}.properties` | the live tables of `serve` |\n"

_TEXT = """\
# Files for Trino

Written by `thermocline views config`; running it again replaces them. Copy them to Trino's `etc` on every
node, under the same names. Trino reads catalogs, table descriptions and client settings only when it starts,
so restart it after adding a topic. Access rules, resource groups and session properties matter only on the
coordinator.

| file | what it does |
| --- | --- |
| `catalog/{lake}.properties` | the Iceberg catalog, as `[catalog]` of `thermocline.toml` has it |
| `catalog/{kafka}.properties`, `kafka/*.json` | the Kafka catalog: a table for each topic, with text |
{server}\
| `kafka-client.properties` | security, and fast scans; the files that it names must exist on every node |
| `access-control.*` | who may do what; merge it into your rules if you have some |
| `resource-groups.*` | how many queries run at once: an example |
| `session-property-config.*` | limits for analysts, and a join for clients with the tag `{tag}`: examples |

Trino 480 or newer for tables of format version 3; 476 reads those of version 2. The plugins are `iceberg`,
`kafka`, `resource-group-managers` and `session-property-managers`, which every distribution has. For a
catalog in SQLite, put the `sqlite-jdbc` jar into `plugin/iceberg`, and use a single node. If the files are in
S3 and the settings do not name the region, set `AWS_REGION`; otherwise Trino does not start.

## Rights

- `{publisher}` publishes the views, which run with its rights: it may read the tables and the topics and own
  views beside the tables. Trino must authenticate users: otherwise, anybody can claim to be this user.
- Everybody else may read the views, and nothing else: neither the tables nor Kafka. Anyone who may read
  the table itself can bypass the row filter of its views.
- In Kafka, the principal of Trino needs DESCRIBE, READ and DESCRIBE_CONFIGS on the topics. A quota
  (`consumer_byte_rate`) on it bounds what analysts can ask of the brokers.

## Secrets

These files contain no secrets. On every node, set these variables for Trino, to the values that
`thermocline.toml` uses. In the one for `sasl.password`, put a `\\` before each `"` and `\\`.

{secrets}

## Not translated

{left_out}

## Topics

Trino shows a topic that does not exist as an empty table, without an error.

{topics}
"""
